-- What wrk sends and says: the bodies of a file in turns, and figures as one line of JSON.

local bodies = {}

function init(arguments)
  for line in io.lines(arguments[1]) do
    bodies[#bodies + 1] = line
  end
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
end

local next = 0

function request()
  next = next % #bodies + 1
  return wrk.format(nil, nil, nil, bodies[next])
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format(
    '{"requests": %d, "seconds": %f, "p50_us": %d, "p99_us": %d, "failed": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99), failed))
end
