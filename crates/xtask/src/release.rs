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
    let package = format!("{BINARY}-manager");
    run::plainly(run::cargo([
        "build",
        "--release",
        "--locked",
        "--package",
        &package,
    ]))?;
    let path = released()?;
    let content = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    // It runs, too.
    run::plainly(run::program(&path, ["version"]))?;
    let faults = faults(&content);
    println!("{}: {} bytes", path.display(), content.len());
    if faults.is_empty() {
        println!("static, stripped, at most {LARGEST} bytes");
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{} is {}",
        path.display(),
        faults.join(", and ")
    )))
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
    fn what_is_larger_than_the_image_may_be_is_not_released() {
        let large = vec![0; LARGEST + 1];
        assert!(faults(&large)[0].contains("more than 40000000"));
        assert!(!faults(&large[1..])[0].contains("more than"));
    }
}
