//! The mount a path is on, from the kernel's list. Pure: the list comes in as text.

use std::path::{Path, PathBuf};

/// File systems whose files get their numbers only when they are looked up.
const NUMBERED_ANEW: &str = "fuse";
/// File systems of virtual machines: what is mounted there is named after the machine.
const NAMED_ANEW: [&str; 2] = ["virtiofs", "9p"];
/// Network file systems whose source says which share it is.
const SHARES: [&str; 6] = ["cifs", "smb3", "lustre", "beegfs", "gpfs", "zfs"];

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The device's major and minor number.
    pub(super) device: String,
    /// The directory of the file system that is mounted.
    pub(super) root: String,
    /// The type of the file system.
    pub(super) kind: String,
    /// Where it comes from.
    pub(super) source: String,
}

/// The mount that a path is on, from the text of `mountinfo`.
pub(super) fn of(mounts: &str, path: &Path) -> Option<Mount> {
    let all = mounts.lines().filter_map(read);
    // Of two mounts in one place the later one is seen.
    all.filter(|(place, _)| path.starts_with(place))
        .max_by_key(|(place, _)| place.components().count())
        .map(|(_, mount)| mount)
}

/// Parses a line: the mount point and the mount. `None` if it is malformed.
fn read(line: &str) -> Option<(PathBuf, Mount)> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ');
    let mut after = after.split(' ');
    let device = before.nth(2)?.to_owned();
    let root = plain(before.next()?);
    let place = PathBuf::from(plain(before.next()?));
    let mount = Mount {
        device,
        root,
        kind: after.next()?.to_owned(),
        source: plain(after.next()?),
    };
    Some((place, mount))
}

/// The text with `\040` and its like as the characters they stand for.
fn plain(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(code) = code {
            plain.push(code);
            rest = &after[3..];
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

impl Mount {
    /// Whether the mounted directory is the same after the next mount.
    pub(super) fn has_stable_root(&self) -> bool {
        !NAMED_ANEW.contains(&self.kind.as_str())
    }

    /// Whether files have the same numbers after the next mount.
    pub(super) fn has_stable_inodes(&self) -> bool {
        !self.kind.starts_with(NUMBERED_ANEW)
    }

    /// The type and the source of a network file system. `None` for any other one.
    pub(super) fn share(&self) -> Option<String> {
        let source = &self.source;
        match self.kind.as_str() {
            "nfs" | "nfs4" => Some(format!("nfs {source}")),
            // Its monitors come and go; the path stays.
            "ceph" => {
                let path = source.rfind(":/").or_else(|| source.rfind("=/"))?;
                Some(format!("ceph {}", &source[path + 1..]))
            }
            kind if SHARES.contains(&kind) || kind.starts_with("fuse.") => Some(format!("{kind} {source}")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 8:16 / /var rw - xfs /dev/sdb rw
36 30 8:32 /pvc-1 /var/etcd rw shared:3 master:1 - xfs /dev/sdc rw
37 36 8:48 / /var/etcd rw - ext4 /dev/sdd rw
38 30 8:64 / /var/etcd-other rw - ext4 /dev/sde rw
";

    #[test]
    fn the_innermost_and_latest_mount_counts() {
        let device = |path: &str| of(MOUNTS, Path::new(path)).map(|mount| mount.device);
        assert_eq!(device("/var/etcd").as_deref(), Some("8:48"));
        assert_eq!(device("/var/etcd/data").as_deref(), Some("8:48"));
        assert_eq!(device("/var/etcd-other").as_deref(), Some("8:64"));
        assert_eq!(device("/var/lib").as_deref(), Some("8:16"));
        assert_eq!(device("/opt").as_deref(), Some("253:0"));
        assert_eq!(of("nonsense\n1 2 3 - x\n", Path::new("/")), None);
    }
}
