//! Mounts as a process sees them, from /proc/PID/mountinfo.
//!
//! The `procfs` crate reads this file too, but leaves the kernel's escapes (`\040` for a space) in the paths and gives
//! up on the whole file over one path that is not UTF-8.

use super::{HostError, Mount};
use crate::units::{DevId, Pid};
use std::path::PathBuf;

/// One line of mountinfo: a mount with what only this machine needs to know about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Identifies the mount while it lasts (`stx_mnt_id` of its files).
    pub id: u64,
    /// The mount.
    pub mount: Mount,
    /// Options of the file system (`super_block`): `rw`, the controllers of a control-group mount, `upperdir=…`.
    pub options: Vec<String>,
}

/// Mounts that process `pid` sees, in the order of mounting: of two at one point the later one is the visible one.
pub fn mounts(pid: Pid) -> Result<Vec<Mount>, HostError> {
    Ok(mount_entries(pid)?.into_iter().map(|e| e.mount).collect())
}

/// The same with ids and options.
pub fn mount_entries(pid: Pid) -> Result<Vec<MountEntry>, HostError> {
    let path = PathBuf::from(format!("/proc/{pid}/mountinfo"));
    let text = std::fs::read(&path).map_err(|e| HostError::of_process(pid, &path, e))?;
    Ok(parse_mountinfo(&text))
}

/// Parses mountinfo; a line that has not the documented form (`proc_pid_mountinfo(5)`) is left out.
pub fn parse_mountinfo(text: &[u8]) -> Vec<MountEntry> {
    text.split(|&b| b == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<MountEntry> {
    // Fields are separated by single spaces, and a field may be empty (a source can be).
    let mut fields = line.split(|&b| b == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let _parent = fields.next()?;
    let dev = parse_dev(std::str::from_utf8(fields.next()?).ok()?)?;
    let root = unescape(fields.next()?);
    let point = unescape(fields.next()?);
    // Per-mount options, then any number of optional fields, closed by a dash.
    fields.find(|f| *f == b"-")?;
    let fs_type = unescape(fields.next()?);
    let source = unescape(fields.next()?);
    let options = fields.next().unwrap_or_default().split(|&b| b == b',').map(unescape).collect();
    Some(MountEntry { id, mount: Mount { dev, root, point, fs_type, source }, options })
}

/// `major:minor`.
pub(crate) fn parse_dev(text: &str) -> Option<DevId> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(DevId { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Undoes the kernel's escapes: a backslash and three octal digits stand for a byte (`mangle` in fs/proc_namespace.c:
/// space, tab, newline, backslash, `#`). Bytes that are not UTF-8 become replacement characters.
fn unescape(field: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_escapes() {
        let text = b"36 35 98:0 /sub\\040dir /mnt/my\\040data\\134x rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue\n";
        let expected = MountEntry {
            id: 36,
            mount: Mount {
                dev: DevId { major: 98, minor: 0 },
                root: "/sub dir".into(),
                point: "/mnt/my data\\x".into(),
                fs_type: "ext3".into(),
                source: "/dev/root".into(),
            },
            options: vec!["rw".into(), "errors=continue".into()],
        };
        assert_eq!(parse_mountinfo(text), [expected]);
    }

    #[test]
    fn an_empty_source_and_a_dash_in_a_path() {
        let mounts = parse_mountinfo(b"40 1 0:35 / /a/-/b rw - tmpfs  rw\n41 1 0:36 / - rw - nfs4 srv:/x rw\n");
        let seen: Vec<_> = mounts.iter().map(|m| (m.mount.point.as_str(), m.mount.source.as_str())).collect();
        assert_eq!(seen, [("/a/-/b", ""), ("-", "srv:/x")]);
    }

    #[test]
    fn broken_lines_are_left_out_and_spoil_nothing() {
        let text =
            b"\nnonsense\n1 2 3:x / / rw - ext4 a rw\n1 2 3:4 / /cut rw\n7 1 8:1 / /caf\xe9 rw - ext4 /dev/sda1 rw";
        let mounts = parse_mountinfo(text);
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].mount.point, "/caf\u{fffd}");
    }

    #[test]
    fn a_backslash_that_is_no_escape_stays() {
        assert_eq!(unescape(b"a\\9\\04"), "a\\9\\04");
        assert_eq!(unescape(b"\\303\\244"), "ä");
    }
}
