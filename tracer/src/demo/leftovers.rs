//! What a run leaves behind, and its removal, also when the demo itself is killed: a janitor process is told of every
//! leftover as it comes into being, and removes them all once the demo is gone, however it went.

use super::cgroup;
use super::error::DemoError;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// One thing to remove.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Leftover {
    /// A process group to end.
    Group(i32),
    /// A cgroup, and the directory where its controller was switched on for it.
    Cgroup(PathBuf, Option<PathBuf>),
    /// A directory with all that is in it.
    Dir(PathBuf),
}

impl Leftover {
    /// Removes it; nothing happens if it is gone already.
    fn remove(&self) {
        match self {
            Leftover::Group(id) => {
                if let Some(group) = Pid::from_raw(*id) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
            }
            Leftover::Cgroup(dir, switched_on) => cgroup::remove(dir, switched_on.as_deref()),
            Leftover::Dir(dir) => remove_dir(dir),
        }
    }
}

/// A dying process may still add a file, so once may not be enough.
fn remove_dir(dir: &Path) {
    for _ in 0..20 {
        match fs::remove_dir_all(dir) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            _ => return,
        }
    }
}

/// What the janitor is told.
#[derive(Serialize, Deserialize)]
enum Message {
    /// Remove it in the end.
    Add(Leftover),
    /// It is gone; its id may come to mean something else.
    Forget(Leftover),
}

/// Leftovers of a run, removed when dropped; the janitor does it if this process cannot.
pub struct Leftovers {
    all: Vec<Leftover>,
    janitor: Child,
    to_janitor: Option<ChildStdin>,
}

impl Leftovers {
    /// Starts the janitor, `program` with these arguments.
    pub fn start(program: &Path, args: &[&str]) -> Result<Leftovers, DemoError> {
        let mut janitor = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            // Ctrl-C in a terminal goes to the whole foreground group; the janitor must outlive it.
            .process_group(0)
            .spawn()
            .map_err(|source| DemoError::Spawn { role: "janitor", program: program.to_owned(), source })?;
        let to_janitor = janitor.stdin.take();
        Ok(Leftovers { all: Vec::new(), janitor, to_janitor })
    }

    /// Sees to it that `leftover` is removed. Call it before the thing exists where its name is known before.
    pub fn add(&mut self, leftover: Leftover) -> Result<(), DemoError> {
        self.tell(&Message::Add(leftover.clone()))?;
        self.all.push(leftover);
        Ok(())
    }

    /// `leftover` is gone.
    pub fn forget(&mut self, leftover: &Leftover) {
        self.all.retain(|l| l != leftover);
        // A janitor that is gone has nothing to forget.
        let _ = self.tell(&Message::Forget(leftover.clone()));
    }

    fn tell(&mut self, message: &Message) -> Result<(), DemoError> {
        let broken = |source| DemoError::Queue { queue: "to the janitor", source };
        let mut line = serde_json::to_vec(message).map_err(|e| broken(e.into()))?;
        line.push(b'\n');
        self.to_janitor.as_mut().map_or(Ok(()), |pipe| pipe.write_all(&line)).map_err(broken)
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        for leftover in self.all.drain(..).rev() {
            leftover.remove();
        }
        // Its work is done already; it finds nothing and ends.
        drop(self.to_janitor.take());
        let _ = self.janitor.wait();
    }
}

/// The janitor: notes what it is told until the demo is gone, then removes what is left, latest first.
pub fn janitor(messages: impl BufRead) {
    for leftover in outstanding(messages).iter().rev() {
        leftover.remove();
    }
}

fn outstanding(messages: impl BufRead) -> Vec<Leftover> {
    let mut all = Vec::new();
    // A line cut short by the demo's death is no message.
    for message in messages.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()) {
        match message {
            Message::Add(leftover) => all.push(leftover),
            Message::Forget(leftover) => all.retain(|l| *l != leftover),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_janitor_keeps_what_was_added_and_not_forgotten() {
        let dir = Leftover::Dir("/x".into());
        let lines = [Message::Add(dir.clone()), Message::Add(Leftover::Group(7)), Message::Forget(Leftover::Group(7))]
            .map(|m| serde_json::to_string(&m).unwrap())
            .join("\n");
        assert_eq!(outstanding(lines.as_bytes()), vec![dir.clone()]);
        let cut = format!("{lines}\n{{\"Add\":{{\"Gro");
        assert_eq!(outstanding(cut.as_bytes()), vec![dir]);
    }

    #[test]
    fn directories_go_and_absent_ones_do_no_harm() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("run");
        fs::create_dir_all(dir.join("data")).unwrap();
        fs::write(dir.join("data/x"), "x").unwrap();
        let message = serde_json::to_string(&Message::Add(Leftover::Dir(dir.clone()))).unwrap();
        janitor(message.as_bytes());
        assert!(!dir.exists());
        janitor(message.as_bytes());
    }
}
