-- Drives wrk: sends the bodies of a file in turn, checks every answer, and ends with one line of
-- JSON that tests/benchmarks/wrk.py reads.
-- Arguments: file of bodies (one a line), a text that a whole answer contains, least SSE frames,
-- file of API keys (one a line; none: what the headers say), whose turn it is body by body.
local threads = {}

function setup(thread)
   table.insert(threads, thread)
end

local function lines_of(path)
   local found = {}
   for line in io.lines(path) do found[#found + 1] = line end
   return found
end

local function headers_with(key)
   local headers = { authorization = "Bearer " .. key }
   for name, value in pairs(wrk.headers) do headers[name] = value end
   return headers
end

function init(args)
   requests, turn = {}, 0
   local bodies, keys = lines_of(args[1]), lines_of(args[4])
   for at = 1, math.max(#bodies, #keys) do
      local key, body = keys[at], bodies[(at - 1) % #bodies + 1]
      requests[at] = wrk.format("POST", nil, key and headers_with(key), body)
   end
   proof, frames_min = args[2], tonumber(args[3])
   answers, frames, wrong, first_wrong = 0, 0, 0, ""
end

function request()
   turn = turn % #requests + 1
   return requests[turn]
end

local function count_frames(body)
   local count, at = 0, 1
   while true do
      local _, last = body:find("data: ", at, true)
      if not last then return count end
      count, at = count + 1, last + 1
   end
end

function response(status, headers, body)
   local seen = frames_min > 0 and count_frames(body) or 0
   answers, frames = answers + 1, frames + seen
   if status ~= 200 or seen < frames_min or not body:find(proof, 1, true) then
      wrong = wrong + 1
      if wrong == 1 then first_wrong = status .. " " .. body:sub(1, 300) end
   end
end

local function quoted(text)
   return '"' .. text:gsub('[%c\\"]', function(c) return ("\\u%04x"):format(c:byte()) end) .. '"'
end

function done(summary, latency, _)
   local total = { answers = 0, frames = 0, wrong = 0 }
   local first = ""
   for _, thread in ipairs(threads) do
      for name in pairs(total) do total[name] = total[name] + thread:get(name) end
      if first == "" then first = thread:get("first_wrong") end
   end
   local errors = summary.errors
   io.write(("RESULT {\"seconds\": %.6f, \"answers\": %d, \"frames\": %d, \"wrong\": %d, " ..
             "\"first_wrong\": %s, \"socket_errors\": %d, \"timeouts\": %d, " ..
             "\"p50_us\": %d, \"p99_us\": %d, \"max_us\": %d}\n"):format(
      summary.duration / 1e6, total.answers, total.frames, total.wrong, quoted(first),
      errors.connect + errors.read + errors.write, errors.timeout,
      latency:percentile(50), latency:percentile(99), latency.max))
end
