//! Checks the free space for a snapshot and a restored member, before anything is written.

use std::path::Path;

use crate::failure::Failure;

/// The space for etcd's files beside its database: two preallocated WAL files, and more while it runs.
const WAL_SPACE: u64 = 256 << 20;

/// Fails unless a folder has space for a snapshot of this many bytes and this number of members restored from it. Too
/// little space is a retriable failure: a retry may run on another node.
pub fn require_free_space(folder: &Path, snapshot: u64, members: u64) -> Result<(), Failure> {
    let found = rustix::fs::statvfs(folder)
        .map_err(|error| crate::checks::scratch_failure(folder, &std::io::Error::from(error)))?;
    compare_free_space(
        folder,
        found.f_frsize.saturating_mul(found.f_bavail),
        snapshot,
        members,
    )
}

fn compare_free_space(folder: &Path, free: u64, snapshot: u64, members: u64) -> Result<(), Failure> {
    let member = snapshot.saturating_add(WAL_SPACE);
    let needed = snapshot.saturating_add(member.saturating_mul(members));
    if free >= needed {
        return Ok(());
    }
    let message = format!(
        "the scratch directory {} has {free} bytes free, but {needed} are needed: {snapshot} for the snapshot{}",
        folder.display(),
        if members > 0 {
            format!(", as much for the restored database, and {WAL_SPACE} for its WAL")
        } else {
            String::new()
        },
    );
    // A retry may run on a node with more space.
    Err(Failure::retriable("Scratch", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_space_is_reported_in_numbers() {
        let folder = Path::new("/tmp/restore");
        assert_eq!(compare_free_space(folder, WAL_SPACE + 10, 5, 1), Ok(()));
        let failure = compare_free_space(folder, WAL_SPACE + 9, 5, 1).expect_err("one byte is missing");
        assert_eq!(
            failure.to_string(),
            "the scratch directory /tmp/restore has 268435465 bytes free, but 268435466 are needed: 5 for the snapshot, as \
             much for the restored database, and 268435456 for its WAL"
        );
        let failure = compare_free_space(folder, 4, 5, 0).expect_err("one byte is missing");
        assert_eq!(
            failure.to_string(),
            "the scratch directory /tmp/restore has 4 bytes free, but 5 are needed: 5 for the snapshot"
        );
        assert!(compare_free_space(folder, u64::MAX - 1, u64::MAX, 1).is_err());
    }
}
