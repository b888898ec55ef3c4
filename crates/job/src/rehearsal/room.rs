//! Whether there is room for a restored member, told in numbers before anything is written.

use std::path::Path;

use crate::failure::Failure;

/// What etcd writes beside its database: two files of its log, which it makes as large as they will ever be, and some
/// more as it runs.
const LOG: u64 = 256 << 20;

/// Whether a snapshot of this size and so many members made of it fit into a folder.
pub fn room(folder: &Path, snapshot: u64, members: u64) -> Result<(), Failure> {
    let found = rustix::fs::statvfs(folder)
        .map_err(|error| crate::check::scratch_failed(folder, &std::io::Error::from(error)))?;
    judge(
        folder,
        found.f_frsize.saturating_mul(found.f_bavail),
        snapshot,
        members,
    )
}

fn judge(folder: &Path, free: u64, snapshot: u64, members: u64) -> Result<(), Failure> {
    let member = snapshot.saturating_add(LOG);
    let needed = snapshot.saturating_add(member.saturating_mul(members));
    if free >= needed {
        return Ok(());
    }
    let message = format!(
        "{free} bytes are free in {}, where a backup is checked, and {needed} are needed: {snapshot} for the snapshot{}",
        folder.display(),
        if members > 0 {
            format!(", as much for the database that is made of it, and {LOG} for etcd's log")
        } else {
            String::new()
        },
    );
    // Another node may have the room.
    Err(Failure::passing("Scratch", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_too_small_is_told_in_numbers() {
        let folder = Path::new("/tmp/restore");
        assert_eq!(judge(folder, LOG + 10, 5, 1), Ok(()));
        let failure = judge(folder, LOG + 9, 5, 1).expect_err("one byte is missing");
        for number in [
            "268435465 bytes are free",
            "268435466 are needed",
            "5 for the snapshot, as much",
        ] {
            assert!(failure.message.contains(number), "{failure}");
        }
        let failure = judge(folder, 4, 5, 0).expect_err("one byte is missing");
        assert!(
            failure.message.ends_with("5 are needed: 5 for the snapshot"),
            "{failure}"
        );
        assert!(judge(folder, u64::MAX - 1, u64::MAX, 1).is_err());
    }
}
