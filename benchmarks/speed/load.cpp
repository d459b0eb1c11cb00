// Asks an HTTP server on this machine over some kept-alive connections, each again as soon as it is answered.
//
//     load PORT CONNECTIONS SECONDS BODIES   where each line of the file BODIES is a JSON body for POST /predict
//
// Prints {"requests", "failed", "seconds", "p50_us", "p99_us"}; an answer other than 200 counts as failed. One thread
// and no parsing beyond the length of an answer, so that it takes little of the machine that it measures.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Connection {
    int socket;
    std::string came;
    Clock::time_point asked;
};

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::exit(1);
}

int connected(int port) {
    const int found = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(found, reinterpret_cast<sockaddr*>(&address), sizeof address)) fail("connect");
    const int on = 1;
    setsockopt(found, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return found;
}

std::vector<std::string> requests_of(const char* path) {
    std::ifstream file(path);
    std::vector<std::string> found;
    for (std::string body; std::getline(file, body);)
        found.push_back("POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body);
    if (found.empty()) fail(path);
    return found;
}

// Whether the answer is there as a whole.
bool complete(const std::string& came) {
    const size_t head = came.find("\r\n\r\n"), length = came.find("ontent-length: ");
    return head != std::string::npos && length < head &&
           came.size() >= head + 4 + std::strtoul(came.c_str() + length + 15, nullptr, 10);
}

int main(int, char** arguments) {
    const int port = std::atoi(arguments[1]), n_connections = std::atoi(arguments[2]);
    const double seconds = std::atof(arguments[3]);
    const std::vector<std::string> requests = requests_of(arguments[4]);
    std::vector<double> times;
    long failed = 0;
    size_t next = 0;
    const int events = epoll_create1(0);
    std::vector<Connection> connections(n_connections);
    const auto ask = [&](Connection& own) {
        const std::string& request = requests[next++ % requests.size()];
        own.came.clear();
        own.asked = Clock::now();
        if (write(own.socket, request.data(), request.size()) != static_cast<ssize_t>(request.size())) fail("write");
    };
    for (Connection& own : connections) {
        own.socket = connected(port);
        epoll_event event{EPOLLIN, {.ptr = &own}};
        epoll_ctl(events, EPOLL_CTL_ADD, own.socket, &event);
    }
    const auto start = Clock::now();
    for (Connection& own : connections) ask(own);
    char buffer[1 << 16];
    while (seconds_since(start) < seconds) {
        epoll_event ready[64];
        const int n = epoll_wait(events, ready, 64, 1000);
        for (int i = 0; i < n; ++i) {
            Connection& own = *static_cast<Connection*>(ready[i].data.ptr);
            const ssize_t size = read(own.socket, buffer, sizeof buffer);
            if (size <= 0) fail("the server closed a connection");
            own.came.append(buffer, size);
            if (!complete(own.came)) continue;
            times.push_back(1e6 * seconds_since(own.asked));
            failed += own.came.compare(0, 12, "HTTP/1.1 200") != 0;
            ask(own);
        }
    }
    const double took = seconds_since(start);
    std::sort(times.begin(), times.end());
    const auto percentile = [&](double share) { return times.empty() ? 0 : times[size_t(share * (times.size() - 1))]; };
    std::printf("{\"requests\": %zu, \"failed\": %ld, \"seconds\": %.3f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n", times.size(),
                failed, took, percentile(0.5), percentile(0.99));
}
