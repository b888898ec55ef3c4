//! The Debian packages a build needs: found missing, they are installed where that is allowed, else named.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::run;

/// A program that must be there, and the packages that bring it.
struct Need {
    program: &'static str,
    packages: &'static [&'static str],
}

const NEEDS: &[Need] = &[
    // ring is compiled from C, and Rust links with it.
    Need {
        program: "cc",
        packages: &["gcc", "libc6-dev"],
    },
    Need {
        program: "git",
        packages: &["git"],
    },
];

/// Makes sure that every needed program is there.
pub(crate) fn ensure() -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let missing = missing(&directories);
    if missing.is_empty() {
        let names: Vec<&str> = NEEDS.iter().map(|need| need.program).collect();
        println!("all there: {}", names.join(", "));
        return Ok(());
    }
    let command = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root || !Path::new("/usr/bin/apt-get").exists() {
        return Err(format!(
            "packages are missing; install them, on Debian by: sudo {command}"
        ));
    }
    println!("installing what is missing: {command}");
    let apt = |arguments: &[&str]| {
        let mut apt = run::program(Path::new("/usr/bin/apt-get"), arguments);
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        run::plainly(apt)
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], missing.as_slice()].concat())
}

fn missing(path: &[PathBuf]) -> Vec<&'static str> {
    NEEDS
        .iter()
        .filter(|need| {
            !path
                .iter()
                .any(|directory| is_executable(&directory.join(need.program)))
        })
        .flat_map(|need| need.packages.iter().copied())
        .collect()
}

fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_on_the_path_means_every_package_is_missing() {
        assert_eq!(missing(&[]), ["gcc", "libc6-dev", "git"]);
    }

    #[test]
    fn what_built_this_test_is_not_missing() {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
        assert!(!missing(&directories).contains(&"gcc"));
    }
}
