//! Processes, as far as they decide about a commit. The kernel closes the files of a process that is killed, and such a
//! file is not whole. It also tells of each close of a descriptor that a child has inherited.

use std::fs;

/// `PF_EXITING` in the flags of `/proc/PID/stat`.
const EXITING: u64 = 4;
/// Positions of the flags and of the exit code in `/proc/PID/stat`, counted after the name of the program.
const FLAGS: usize = 6;
const EXIT_CODE: usize = 49;

/// The process of a thread; 0 if it cannot be seen from here.
pub(super) fn process_of(thread: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    process.and_then(|process| process.trim().parse().ok()).unwrap_or(0)
}

/// True if a thread is of a process, or the process is unknown. No file is read: a child that is in an `execve` waits for
/// the answer to a close.
pub(super) fn is_of(thread: u32, process: u32) -> bool {
    process == 0 || fs::exists(format!("/proc/{process}/task/{thread}")).unwrap_or(true)
}

/// True if a thread is ending because of a signal or with an exit code other than 0. Of a thread that cannot be seen
/// from here, such as one of another PID namespace, nothing is known, and it counts as one that goes on.
pub(super) fn is_failing(thread: u32) -> bool {
    let of = |file: &str| fs::read_to_string(format!("/proc/{thread}/{file}")).unwrap_or_default();
    // A thread that ends has no memory any more. This is asked first, because `stat` waits for the end of an `execve`,
    // and that waits for the files that it closes.
    has_no_memory(&of("statm")) && says_failing(&of("stat"))
}

/// True if `/proc/PID/statm` is of a thread without memory.
fn has_no_memory(statm: &str) -> bool {
    !statm.is_empty() && statm.split_ascii_whitespace().all(|pages| pages == "0")
}

fn says_failing(stat: &str) -> bool {
    // The name may have any characters.
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    number(FLAGS) & EXITING != 0 && number(EXIT_CODE) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_of_one_process() {
        let own = std::process::id();
        let thread =
            std::thread::spawn(|| fs::read_link("/proc/thread-self").expect("a link")).join().expect("it ends");
        let thread = thread.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        assert!(is_of(own, own) && !is_of(thread.expect("a number"), 1) && is_of(u32::MAX, 0) && !is_of(1, own));
        assert_eq!((process_of(own), process_of(u32::MAX)), (own, 0));
    }

    #[test]
    fn a_process_that_goes_on_and_one_that_is_unknown_do_not_fail() {
        assert!(has_no_memory("0 0 0\n") && !has_no_memory("0 1 0\n") && !has_no_memory(""));
        assert!(!is_failing(std::process::id()) && !is_failing(0) && !is_failing(u32::MAX));
        let line = |flags: u32, code: u32| {
            let zeros = |count: usize| "0 ".repeat(count);
            format!("7 (a ) name) R {}{flags} {}{code}\n", zeros(5), zeros(42))
        };
        assert!(says_failing(&line(4, 9)) && says_failing(&line(4, 256)));
        assert!(!says_failing(&line(4, 0)) && !says_failing(&line(0, 9)) && !says_failing("7"));
    }
}
