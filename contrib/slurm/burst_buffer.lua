-- Checkpoints of Slurm's jobs in Entresol's burst buffer: stage-out waits until they are on the parallel file system.
--
-- Place: /etc/slurm/burst_buffer.lua on the host of slurmctld, with `BurstBufferType=burst_buffer/lua` in slurm.conf and
-- /etc/entresol/burst.env beside it. Slurm calls this file for jobs that have this line in their script:
--
--     #BB_LUA entresol [job=N]
--
-- N is the number under which the job's checkpoints are kept, Slurm's own job number by default. A job that goes on from
-- the checkpoints of another one names that one's number.

-- Settings by name, from lines NAME=VALUE.
local function settings()
  local path = os.getenv("ENTRESOL_BURST_SETTINGS") or "/etc/entresol/burst.env"
  local file, why = io.open(path)
  if not file then
    return nil, "entresol: " .. why
  end
  local found = { PROGRAM = "/usr/bin/entresol", DRAIN_FOR = "30m" }
  for line in file:lines() do
    local name, value = line:match("^%s*([%w_]+)=(.*)$")
    if name then
      found[name] = value
    end
  end
  file:close()
  for _, name in ipairs({ "COORDINATOR", "PFS" }) do
    if not found[name] then
      return nil, "entresol: " .. path .. " has no " .. name
    end
  end
  return found
end

-- The number of a job's checkpoints by its script, or nil and the fault of the directive.
local function number(job_script, job_id)
  for line in io.lines(job_script) do
    local words = {}
    for word in line:gmatch("%S+") do
      words[#words + 1] = word
    end
    if words[1] == "#BB_LUA" and words[2] == "entresol" then
      local job = words[3] and words[3]:match("^job=(%d+)$") or job_id
      if words[4] or (words[3] and not words[3]:match("^job=%d+$")) then
        return nil, line .. ": the options are [job=N]"
      end
      return job
    end
  end
  return nil, "the script has no line '#BB_LUA entresol [job=N]'"
end

-- A word for the shell.
local function quoted(word)
  return "'" .. word:gsub("'", "'\\''") .. "'"
end

-- Runs `entresol burst`; true if it succeeds, and what it says. Under a key slurmctld is an administrator: it sees all jobs.
local function burst(found, command, job, more)
  local words = { found.PROGRAM, "burst", command, "--coordinator", found.COORDINATOR, "--pfs", found.PFS, "--job", job }
  if found.ENTRESOL_BURST_KEY then
    words[#words + 1] = "--key"
    words[#words + 1] = found.ENTRESOL_BURST_KEY
  end
  for _, word in ipairs(more or {}) do
    words[#words + 1] = word
  end
  for at, word in ipairs(words) do
    words[at] = quoted(word)
  end
  local pipe = io.popen(table.concat(words, " ") .. " 2>&1; echo \"exit $?\"")
  local said, code = pipe:read("*a"):match("^(.*)exit (%d+)\n$")
  pipe:close()
  return code == "0", said
end

-- The fault if a user asks for checkpoints that are another user's: under a key, the folder of a job is its owner's.
local function foreign(found, job, uid)
  if not found.ENTRESOL_BURST_KEY or tostring(uid) == "0" then
    return nil
  end
  local pipe = io.popen("stat -c %u -- " .. quoted(found.PFS .. "/job-" .. job) .. " 2>/dev/null")
  local owner = pipe:read("*l")
  pipe:close()
  if owner ~= tostring(uid) then
    return "entresol: job " .. job .. " has no checkpoints of this user"
  end
end

-- Runs a command of the burst buffer for a job. An error is shown as the job's reason.
local function for_job(command, job_id, job_script, uid, more)
  local found, fault = settings()
  local job
  if found then
    job, fault = number(job_script, job_id)
  end
  if job and job ~= tostring(job_id) then
    fault = foreign(found, job, uid)
  end
  if fault then
    return slurm.ERROR, fault
  end
  local succeeds, said = burst(found, command, job, more and more(found))
  slurm.log_info("entresol: burst %s of job %s: %s", command, job, said)
  if succeeds then
    return slurm.SUCCESS, said
  end
  return slurm.ERROR, said
end

-- At submission. slurmctld waits: nothing is asked over the network.
function slurm_bb_job_process(job_script, uid, gid)
  local job, fault = number(job_script, "0")
  if job then
    return slurm.SUCCESS
  end
  return slurm.ERROR, fault
end

-- Stage-in: a job waits while the burst buffer does not answer. Its program restores what it needs by itself.
function slurm_bb_data_in(job_id, job_script, uid, gid)
  return for_job("ls", job_id, job_script, uid)
end

-- The settings as variables of the job. slurmctld waits.
function slurm_bb_paths(job_id, job_script, path_file, uid, gid)
  local found, fault = settings()
  if not found then
    return slurm.ERROR, fault
  end
  local job, why = number(job_script, job_id)
  if not job then
    return slurm.ERROR, why
  end
  local file, refused = io.open(path_file, "w")
  if not file then
    return slurm.ERROR, refused
  end
  file:write("ENTRESOL_BURST_COORDINATOR=", found.COORDINATOR, "\n")
  file:write("ENTRESOL_BURST_PFS=", found.PFS, "\n")
  file:write("ENTRESOL_BURST_JOB=", job, "\n")
  -- For the checkpoints of another job the user names the ticket of that one.
  if found.ENTRESOL_BURST_KEY and job == tostring(job_id) then
    file:write("ENTRESOL_BURST_TICKET=", found.ENTRESOL_BURST_RUN or "/run/entresol-burst", "/", job, ".ticket\n")
  end
  file:close()
  return slurm.SUCCESS
end

-- Stage-out, before the job's nodes are given to others: waits until all checkpoints are durable, or says what is left.
function slurm_bb_data_out(job_id, job_script, uid, gid)
  return for_job("drain", job_id, job_script, uid, function(found)
    return { "--for", found.DRAIN_FOR }
  end)
end

-- `scontrol show bbstat entresol N` lists the checkpoints of a job.
function slurm_bb_get_status(uid, gid, name, job)
  local found, fault = settings()
  if not found then
    return slurm.ERROR, fault
  end
  if name ~= "entresol" or not (job or ""):match("^%d+$") then
    return slurm.ERROR, "usage: scontrol show bbstat entresol JOB"
  end
  fault = foreign(found, job, uid)
  if fault then
    return slurm.ERROR, fault
  end
  local succeeds, said = burst(found, "ls", job)
  return succeeds and slurm.SUCCESS or slurm.ERROR, said
end

-- Nothing is to be done at these moments, and no pools are counted: grants reserve the space of each node.
local function nothing()
  return slurm.SUCCESS
end

slurm_bb_pools = nothing
slurm_bb_setup = nothing
slurm_bb_real_size = nothing
slurm_bb_pre_run = nothing
slurm_bb_post_run = nothing
slurm_bb_job_teardown = nothing
