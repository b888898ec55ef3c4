//! How much is free where a volume is mounted, and how much a restored member takes.

use std::path::Path;

/// What etcd's program writes beside the database: the log, which is as large from the start as it will ever be.
pub const LOG: u64 = 128 << 20;

/// Bytes that may still be written to the file system of a volume.
pub fn free(root: &Path) -> Result<u64, String> {
    let found = rustix::fs::statvfs(root)
        .map_err(|error| format!("cannot tell how much is free on {}: {error}", root.display()))?;
    Ok(found.f_frsize.saturating_mul(found.f_bavail))
}

/// An error with the numbers if fewer bytes are free than needed; `parts` says what they are for.
pub fn judge(root: &Path, free: u64, needed: u64, parts: &str) -> Result<(), String> {
    if free >= needed {
        return Ok(());
    }
    Err(format!(
        "{free} bytes are free on {}, and {needed} are needed beside the data of before: {parts}; enlarge the volume, or free some of it",
        root.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_is_too_small_is_told_in_numbers() {
        let root = Path::new("/var/etcd");
        assert_eq!(judge(root, 7, 7, "all"), Ok(()));
        let why = judge(root, 6, 7, "7 for the database").expect_err("one byte is missing");
        for part in [
            "6 bytes are free on /var/etcd",
            "7 are needed",
            "7 for the database",
        ] {
            assert!(why.contains(part), "{why}");
        }
    }
}
