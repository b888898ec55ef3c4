//! `cargo xtask release`: the binary as it is shipped, and whether it is what an image without anything else needs:
//! fully static, stripped, and small. What is in it is not looked at here.

use std::path::{Path, PathBuf};

use crate::{Failure, no_arguments, places, run};

const BINARY: &str = "etcd-operator";
/// All of the image.
const LARGEST: usize = 40_000_000;

/// `cargo xtask release`.
pub(crate) fn command(arguments: &[String]) -> Result<(), Failure> {
    no_arguments(arguments)?;
    build()?;
    Ok(())
}

/// Builds the binary, and gives its path if it is as it must be.
pub(crate) fn build() -> Result<PathBuf, String> {
    let package = format!("{BINARY}-manager");
    let mut build = run::cargo(["build", "--release", "--locked", "--package", &package]);
    let path = released()?;
    // Beside `release` are the triple and the target directory.
    let target = path.ancestors().nth(3).unwrap_or(&path);
    build.env("CARGO_ENCODED_RUSTFLAGS", flags(target).join("\u{1f}"));
    // What is compiled from C tells its places, too.
    build.env(
        "CFLAGS",
        format!("-ffile-prefix-map={}=/target", target.display()),
    );
    run::plainly(build)?;
    let content = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    // It runs, too.
    run::plainly(run::program(&path, ["version"]))?;
    let faults = faults(&content);
    println!("{}: {} bytes", path.display(), content.len());
    if faults.is_empty() {
        println!("static, stripped, at most {LARGEST} bytes");
        return Ok(path);
    }
    Err(format!("{} is {}", path.display(), faults.join(", and ")))
}

/// What the compiler is told for a release: all that `.cargo/config.toml` says, which these replace, and other names for
/// the places of this machine, so that the same commit gives the same bytes in any directory.
fn flags(target: &Path) -> Vec<String> {
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    // The last that fits is taken, and a target directory usually lies in the repository.
    let places = [(home, "/cargo"), (Some(places::root().to_owned()), "/source")];
    let places = places.into_iter().chain([(Some(target.to_owned()), "/target")]);
    for (place, name) in places {
        if let Some(place) = place {
            flags.push(format!("--remap-path-prefix={}={name}", place.display()));
        }
    }
    flags
}

/// Beside the profile in which this program was built.
fn released() -> Result<PathBuf, String> {
    let profile = places::built(BINARY)?;
    let target = profile.parent().and_then(Path::parent);
    target
        .map(|target| target.join("release").join(BINARY))
        .ok_or_else(|| format!("{} lies nowhere", profile.display()))
}

/// What a binary is that it must not be.
fn faults(content: &[u8]) -> Vec<String> {
    let mut faults = Vec::new();
    if content.len() > LARGEST {
        faults.push(format!("{} bytes, more than {LARGEST}", content.len()));
    }
    match Elf::read(content) {
        None => faults.push("no 64-bit ELF file".to_owned()),
        Some(elf) => {
            if elf.asks_for_loader || elf.asks_for_libraries {
                faults.push("not static".to_owned());
            }
            if elf.has_symbols {
                faults.push("not stripped".to_owned());
            }
        }
    }
    faults
}

/// The little that is asked of a 64-bit little-endian ELF file.
#[derive(Debug, PartialEq)]
struct Elf {
    asks_for_loader: bool,
    asks_for_libraries: bool,
    has_symbols: bool,
}

impl Elf {
    fn read(file: &[u8]) -> Option<Self> {
        const LOADER: u64 = 3;
        const DYNAMIC: u64 = 2;
        const NEEDED: u64 = 1;
        const SYMBOLS: u64 = 2;
        if file.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let segments = Table::at(file, 0x20, 0x36)?;
        let sections = Table::at(file, 0x28, 0x3a)?;
        let kinds = |table: &Table, at| table.entries().map(move |entry| number(file, entry + at, 4));
        let mut dynamic = segments
            .entries()
            .filter(|entry| number(file, *entry, 4) == Some(DYNAMIC));
        let asks_for_libraries = match dynamic.next() {
            None => false,
            Some(entry) => {
                let place = |at| usize::try_from(number(file, entry + at, 8)?).ok();
                let (start, size) = (place(8)?, place(0x20)?);
                let mut entries = (start..start + size).step_by(16);
                entries.any(|entry| number(file, entry, 8) == Some(NEEDED))
            }
        };
        Some(Self {
            asks_for_loader: kinds(&segments, 0).any(|kind| kind == Some(LOADER)),
            asks_for_libraries,
            has_symbols: kinds(&sections, 4).any(|kind| kind == Some(SYMBOLS)),
        })
    }
}

/// A table of headers.
struct Table {
    start: usize,
    size: usize,
    count: usize,
}

impl Table {
    /// Its place stands at `place`, the size of an entry and their number at `sizes`.
    fn at(file: &[u8], place: usize, sizes: usize) -> Option<Self> {
        Some(Self {
            start: usize::try_from(number(file, place, 8)?).ok()?,
            size: usize::try_from(number(file, sizes, 2)?).ok()?,
            count: usize::try_from(number(file, sizes + 2, 2)?).ok()?,
        })
    }

    fn entries(&self) -> impl Iterator<Item = usize> + use<> {
        let (start, size) = (self.start, self.size);
        (0..self.count).map(move |index| start + index * size)
    }
}

/// A little-endian number of so many bytes.
fn number(file: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let found = file.get(at..at + bytes)?;
    Some(
        found
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_asks_for_libraries_or_has_symbols_is_not_released() {
        let shell = std::fs::read("/bin/sh").expect("a shell");
        assert_eq!(faults(&shell), ["not static"]);
        // This test is linked as the operator is, and keeps its symbols.
        let own = std::env::current_exe().expect("this program's own file");
        let own = std::fs::read(own).expect("readable");
        assert!(!faults(&own).contains(&"not static".to_owned()));
        assert!(faults(&own).contains(&"not stripped".to_owned()));
        assert_eq!(faults(b"#!/bin/sh\n"), ["no 64-bit ELF file"]);
    }

    #[test]
    fn the_flags_of_a_release_hold_those_of_every_build_and_rename_every_place() {
        let config = std::fs::read_to_string(places::root().join(".cargo/config.toml")).expect("the config");
        let listed = config
            .lines()
            .find(|line| line.starts_with("rustflags"))
            .expect("flags");
        assert_eq!(listed, "rustflags = [\"-C\", \"target-feature=+crt-static\"]");
        let flags = flags(&places::root().join("target"));
        assert_eq!(flags[0], "-Ctarget-feature=+crt-static");
        assert!(
            flags.last().is_some_and(|last| last.ends_with("/target=/target")),
            "{flags:?}"
        );
        assert!(flags.iter().any(|flag| flag.ends_with("=/source")), "{flags:?}");
    }

    #[test]
    fn what_is_larger_than_the_image_may_be_is_not_released() {
        let large = vec![0; LARGEST + 1];
        assert!(faults(&large)[0].contains("more than 40000000"));
        assert!(!faults(&large[1..])[0].contains("more than"));
    }
}
