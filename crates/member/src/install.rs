//! Puts this very program where the container of etcd finds it: wholly, or not at all.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The name under which the program is found.
const NAME: &str = "etcd-operator";

/// Copies a program into a directory, under the name `etcd-operator` and synced, and returns its path. Killed before
/// the end, it leaves the program that was there.
pub fn install(program: &Path, directory: &Path) -> io::Result<PathBuf> {
    let (new, last) = (directory.join("etcd-operator.new"), directory.join(NAME));
    // What an earlier try left may be of somebody else's mode.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::copy(program, &new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o755))?;
    File::open(&new)?.sync_all()?;
    fs::rename(&new, &last)?;
    File::open(directory)?.sync_all()?;
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Scratch;

    #[test]
    fn the_program_is_there_can_be_run_and_replaces_an_earlier_one() {
        let scratch = Scratch::new();
        let directory = scratch.path();
        let program = directory.join("program");
        fs::write(&program, "one").expect("written");
        fs::set_permissions(&program, Permissions::from_mode(0o600)).expect("set");
        fs::write(directory.join("etcd-operator.new"), "half a prog").expect("left by a killed try");
        for content in ["one", "another"] {
            fs::write(&program, content).expect("written");
            let placed = install(&program, directory).expect("installed");
            assert_eq!(placed, directory.join("etcd-operator"));
            assert_eq!(fs::read_to_string(&placed).expect("read"), content);
            let mode = fs::metadata(&placed).expect("there").permissions().mode();
            assert_eq!(mode & 0o7777, 0o755);
        }
        assert!(!directory.join("etcd-operator.new").exists());
    }
}
