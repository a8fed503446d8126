//! Processes: their command lines and their tree.

use super::HostError;
use crate::units::Pid;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// Command line of a process, arguments separated by spaces; for a kernel thread, which has none, its name in brackets,
/// as `ps` shows it.
pub fn command_line(pid: Pid) -> Result<String, HostError> {
    let path = PathBuf::from(format!("/proc/{pid}/cmdline"));
    let bytes = std::fs::read(&path).map_err(|e| HostError::of_process(pid, &path, e))?;
    let line = join_arguments(&bytes);
    if !line.is_empty() {
        return Ok(line);
    }
    let path = PathBuf::from(format!("/proc/{pid}/comm"));
    let comm = std::fs::read(&path).map_err(|e| HostError::of_process(pid, &path, e))?;
    Ok(format!("[{}]", String::from_utf8_lossy(&comm).trim_end()))
}

/// Turns the NUL-separated arguments of /proc/PID/cmdline into one line; control characters become spaces, so that a
/// multi-line `python -c` script stays on one line.
fn join_arguments(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim_end_matches('\0').chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A process and all its descendants, parents before children. A process whose parent has ended belongs to its new
/// parent, as a rule init, and is not found from here.
pub fn process_tree(pid: Pid) -> Result<Vec<Pid>, HostError> {
    let root = PathBuf::from(format!("/proc/{pid}"));
    if let Err(e) = std::fs::metadata(&root) {
        return Err(HostError::of_process(pid, &root, e));
    }
    let all = procfs::process::all_processes()
        .map_err(|e| HostError::Unreadable { path: "/proc".into(), source: std::io::Error::other(e) })?;
    // A process that ends while the list is read has no stat any more, and is left out.
    let parents = all
        .filter_map(|p| p.ok()?.stat().ok())
        .filter_map(|s| Some((Pid(u32::try_from(s.pid).ok()?), Pid(u32::try_from(s.ppid).ok()?))));
    Ok(descendants(pid, parents))
}

/// `root` and everything below it, given (process, parent) pairs.
fn descendants(root: Pid, parents: impl Iterator<Item = (Pid, Pid)>) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for (process, parent) in parents {
        children.entry(parent).or_default().push(process);
    }
    let mut tree = vec![root];
    // Pids can be reused while the list is read, so a cycle is possible.
    let mut seen = HashSet::from([root]);
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        next += 1;
        let mut below = children.remove(&parent).unwrap_or_default();
        below.sort();
        tree.extend(below.into_iter().filter(|p| seen.insert(*p)));
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromRead;

    #[test]
    fn arguments_are_joined_by_spaces() {
        assert_eq!(join_arguments(b"python3\0-c\0import os\nos.x()\0"), "python3 -c import os os.x()");
        assert_eq!(join_arguments(b""), "");
        // A process that has overwritten its title, with the old arguments' NULs behind it.
        assert_eq!(join_arguments(b"ray::IDLE\0\0\0"), "ray::IDLE");
    }

    #[test]
    fn the_tree_lists_parents_first_and_survives_a_cycle() {
        let pairs = [(2, 1), (5, 2), (4, 2), (9, 5), (7, 1), (2, 9), (3, 3)];
        let tree = descendants(Pid(2), pairs.into_iter().map(|(a, b)| (Pid(a), Pid(b))));
        assert_eq!(tree, [2, 4, 5, 9].map(Pid));
    }

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let text = "12 (a b) R (c) S 7 12 12 0 -1 4194304 1 0 0 0 5 6 0 0 20 -5 1 0 100 4096 1 18446744073709551615 \
                    1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let stat = procfs::process::Stat::from_read(text.as_bytes()).unwrap();
        assert_eq!((stat.comm.as_str(), stat.ppid, stat.nice), ("a b) R (c", 7, -5));
    }

    #[test]
    fn this_process_is_in_its_own_tree() {
        let me = Pid(std::process::id());
        assert_eq!(process_tree(me).unwrap()[0], me);
        assert!(command_line(me).unwrap().contains("gpustall"));
    }

    #[test]
    fn a_process_that_is_not_there() {
        // Above every kernel's PID_MAX_LIMIT of 4194304.
        let nobody = Pid(4_194_305);
        assert!(matches!(process_tree(nobody), Err(HostError::NoSuchProcess(p)) if p == nobody));
        let text = command_line(nobody).unwrap_err().to_string();
        assert!(text.starts_with("no process has pid 4194305"), "{text}");
    }
}
