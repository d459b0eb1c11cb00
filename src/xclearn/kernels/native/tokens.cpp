#include "tokens.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace xclearn {

namespace {

constexpr int64_t LONGEST_WORD = 100;  // code points; a longer one has no pieces (text/tokenisers.py)
const std::string NO_MARK, CONTINUES = "##";

constexpr uint64_t HASH_START = 0xCBF29CE484222325u;

uint64_t hash_step(uint64_t hash, char byte) { return (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3u; }

uint64_t hash_of(const char* bytes, size_t size) {
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < size; ++i) hash = hash_step(hash, bytes[i]);
    return hash;
}

uint64_t place_of(uint64_t hash) { return hash ^ (hash >> 29); }

uint64_t place_of(int32_t first, int32_t last) {
    const uint64_t pair = static_cast<uint64_t>(first) << 32 | static_cast<uint32_t>(last);
    return (pair * 0x9E3779B97F4A7C15u) >> 32;
}

uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

// A word as UTF-8, and where each of its code points ends.
struct Word {
    std::string bytes;
    std::vector<int32_t> ends;

    void clear() {
        bytes.clear();
        ends.clear();
    }
    void add(uint32_t c) {
        if (c < 0x80) {
            bytes.push_back(static_cast<char>(c));
        } else {
            const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
            bytes.push_back(static_cast<char>((0xFF00 >> (more + 1)) | (c >> (6 * more))));
            for (int i = more - 1; i >= 0; --i) bytes.push_back(static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3F)));
        }
        ends.push_back(static_cast<int32_t>(bytes.size()));
    }
};

// The longest known piece from the left, and again; nothing if the word cannot be covered.
void add_pieces(const Vocabulary& vocabulary, const Word& word, std::vector<int32_t>& ids) {
    const size_t before = ids.size(), n = word.ends.size();
    uint64_t hashes[LONGEST_WORD];
    for (size_t start = 0; start < n;) {
        const std::string& mark = start ? CONTINUES : NO_MARK;
        const char* bytes = word.bytes.data();
        const size_t reach = std::min(n, start + static_cast<size_t>(vocabulary.longest()));
        const int32_t first = start ? word.ends[start - 1] : 0;
        uint64_t hash = hash_of(mark.data(), mark.size());
        int32_t byte = first;
        for (size_t end = start; end < reach; ++end) {
            for (; byte < word.ends[end]; ++byte) hash = hash_step(hash, bytes[byte]);
            hashes[end] = hash;
        }
        int32_t id = -1;
        size_t end = reach;
        for (; end > start && id < 0; --end)
            id = vocabulary.find(hashes[end - 1], mark, bytes + first, word.ends[end - 1] - first);
        if (id < 0) {
            ids.resize(before);
            return;
        }
        ids.push_back(id);
        start = end + 1;
    }
}

// `ending` holds the known runs of 1, 2, … words that end before this word, −1 where there is none.
void add_word(const Vectoriser& vectoriser, const Word& word, std::vector<int32_t>& ending, std::vector<int32_t>& ids) {
    if (word.bytes.empty()) return;
    const char* bytes = word.bytes.data();
    const size_t size = word.bytes.size();
    const int32_t whole = vectoriser.vocabulary.find(hash_of(bytes, size), NO_MARK, bytes, size);
    if (whole >= 0) ids.push_back(whole);
    else if (vectoriser.pieces && word.ends.size() <= LONGEST_WORD) add_pieces(vectoriser.vocabulary, word, ids);
    int32_t next = whole;
    for (int32_t& run : ending) {
        const int32_t longer = run >= 0 && whole >= 0 ? vectoriser.vocabulary.find_run(run, whole) : -1;
        if (longer >= 0) ids.push_back(longer);
        run = next;
        next = longer;
    }
}

bool is_ascii_word(uint32_t c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

template <class Unit, class Accepts>
void tokenise(const Vectoriser& vectoriser, const Unit* units, int64_t n, bool lower, const Accepts& is_word,
              std::vector<int32_t>& ids) {
    Word word;
    std::vector<int32_t> ending(vectoriser.pieces ? 0 : vectoriser.vocabulary.longest_run() - 1, -1);
    for (int64_t i = 0; i < n; ++i) {
        uint32_t c = units[i];
        if (lower && c >= 'A' && c <= 'Z') c += 'a' - 'A';
        if (is_word(c)) {
            word.add(c);
        } else {
            add_word(vectoriser, word, ending, ids);
            word.clear();
        }
    }
    add_word(vectoriser, word, ending, ids);
}

std::vector<int32_t> token_ids(const Vectoriser& vectoriser, const Text& text, IsWord is_word) {
    std::vector<int32_t> ids;
    if (text.width == 0)
        tokenise(vectoriser, static_cast<const uint8_t*>(text.data), text.length, true, is_ascii_word, ids);
    else if (text.width == 1)
        tokenise(vectoriser, static_cast<const uint8_t*>(text.data), text.length, false, is_word, ids);
    else if (text.width == 2)
        tokenise(vectoriser, static_cast<const uint16_t*>(text.data), text.length, false, is_word, ids);
    else tokenise(vectoriser, static_cast<const uint32_t*>(text.data), text.length, false, is_word, ids);
    return ids;
}

}  // namespace

void Vocabulary::add(const char* token, size_t size) {
    block_.append(token, size);
    offsets_.push_back(static_cast<int64_t>(block_.size()));
    longest_ = std::max<int64_t>(longest_,
                                 std::count_if(token, token + size, [](char byte) { return (byte & 0xC0) != 0x80; }));
}

void Vocabulary::build() {
    size_t n_slots = 16;
    while (n_slots < 2 * offsets_.size()) n_slots *= 2;
    slots_.assign(n_slots, {0, -1});
    for (int32_t id = 0; id < size(); ++id) {
        const uint64_t hash = hash_of(block_.data() + offsets_[id], offsets_[id + 1] - offsets_[id]);
        uint64_t place = place_of(hash) & (n_slots - 1);
        while (slots_[place].id >= 0) place = (place + 1) & (n_slots - 1);
        slots_[place] = {tag_of(hash), id};
    }
    build_runs();
}

void Vocabulary::build_runs() {
    std::vector<Run> found;
    for (int32_t id = 0; id < size(); ++id) {
        const char* token = block_.data() + offsets_[id];
        const char* end = block_.data() + offsets_[id + 1];
        const char* last = end;
        while (last > token && last[-1] != ' ') --last;
        if (last == token) continue;
        const auto part = [&](const char* from, const char* to) {
            return find(hash_of(from, to - from), NO_MARK, from, to - from);
        };
        found.push_back({part(token, last - 1), part(last, end), id});
        longest_run_ = std::max<int64_t>(longest_run_, 1 + std::count(token, end, ' '));
    }
    size_t n_slots = 16;
    while (n_slots < 2 * found.size()) n_slots *= 2;
    runs_.assign(n_slots, {-1, -1, -1});
    for (const Run& run : found) {
        uint64_t place = place_of(run.first, run.last) & (n_slots - 1);
        while (runs_[place].id >= 0) place = (place + 1) & (n_slots - 1);
        runs_[place] = run;
    }
}

int32_t Vocabulary::find_run(int32_t first, int32_t last) const {
    const uint64_t mask = runs_.size() - 1;
    for (uint64_t place = place_of(first, last) & mask; runs_[place].id >= 0; place = (place + 1) & mask)
        if (runs_[place].first == first && runs_[place].last == last) return runs_[place].id;
    return -1;
}

int32_t Vocabulary::find(uint64_t hash, const std::string& mark, const char* word, size_t size) const {
    const uint64_t mask = slots_.size() - 1;
    for (uint64_t place = place_of(hash) & mask; slots_[place].id >= 0; place = (place + 1) & mask) {
        const auto [tag, id] = slots_[place];
        const char* token = block_.data() + offsets_[id];
        if (tag == tag_of(hash) && offsets_[id + 1] - offsets_[id] == static_cast<int64_t>(mark.size() + size) &&
            std::memcmp(token, mark.data(), mark.size()) == 0 && std::memcmp(token + mark.size(), word, size) == 0)
            return id;
    }
    return -1;
}

Bag bag_of(const Vectoriser& vectoriser, const Text& text, IsWord is_word) {
    std::vector<int32_t> ids = token_ids(vectoriser, text, is_word);
    std::sort(ids.begin(), ids.end());
    Bag bag;
    std::vector<double> weights;
    double squares = 0;
    for (size_t i = 0, end; i < ids.size(); i = end) {
        for (end = i; end < ids.size() && ids[end] == ids[i];) ++end;
        const auto count = static_cast<int64_t>(end - i);
        const double weight = vectoriser.damped ? vectoriser.damped[std::min(count, vectoriser.n_damped - 1)]
                                                : static_cast<double>(count);
        bag.ids.push_back(ids[i]);
        weights.push_back(weight * vectoriser.idf[ids[i]]);
        squares += weights.back() * weights.back();
    }
    const double norm = vectoriser.normalise && squares > 0 ? std::sqrt(squares) : 1;
    for (const double weight : weights) bag.weights.push_back(static_cast<float>(weight / norm));
    return bag;
}

}  // namespace xclearn
