//! Whether a binary runs in an image without anything else, and what it needs besides if not.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

/// The dynamic loader and the libraries a binary needs, as they are on this machine; none for a static one.
pub(super) async fn libraries(binary: &Path) -> Result<Vec<PathBuf>> {
    let content = std::fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    let Some(loader) = loader(&content) else {
        return Ok(Vec::new());
    };
    let output = Command::new(&loader)
        .arg("--list")
        .arg(binary)
        .output()
        .await
        .with_context(|| format!("{} asks for {loader}, which does not run here", binary.display()))?;
    if !output.status.success() {
        bail!(
            "{} lacks libraries here: {}",
            binary.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let mut found = listed(&String::from_utf8_lossy(&output.stdout));
    found.push(PathBuf::from(loader));
    found.sort();
    found.dedup();
    Ok(found)
}

/// Reads `NAME => PATH (ADDRESS)`; what the kernel provides has no path.
fn listed(output: &str) -> Vec<PathBuf> {
    output
        .lines()
        .filter_map(|line| line.split_once("=>"))
        .filter_map(|(_, rest)| rest.split_whitespace().next())
        .filter(|path| path.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

/// The path in the program header of kind `PT_INTERP` of a 64-bit little-endian ELF file.
fn loader(elf: &[u8]) -> Option<String> {
    const INTERPRETER: u32 = 3;
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let number = |at: usize| -> Option<usize> {
        let bytes = elf.get(at..at + 8)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    let small = |at: usize| -> Option<usize> {
        let bytes = elf.get(at..at + 2)?.try_into().ok()?;
        Some(usize::from(u16::from_le_bytes(bytes)))
    };
    let (table, size, count) = (number(0x20)?, small(0x36)?, small(0x38)?);
    for index in 0..count {
        let header = table + index * size;
        let kind = u32::from_le_bytes(elf.get(header..header + 4)?.try_into().ok()?);
        if kind == INTERPRETER {
            let (start, length) = (number(header + 8)?, number(header + 32)?);
            let path = elf.get(start..start + length)?;
            return Some(String::from_utf8_lossy(path).trim_end_matches('\0').to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_binary_names_its_loader_and_a_static_one_has_none() {
        let shell = std::fs::read("/bin/sh").unwrap();
        assert!(loader(&shell).unwrap().contains("ld-"), "{:?}", loader(&shell));
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(loader(&own), None);
        assert_eq!(loader(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn libraries_are_read_with_their_paths() {
        let output = "\tlinux-vdso.so.1 (0x7f)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 => /lib64/ld-linux-x86-64.so.2 (0x7f)\n";
        assert_eq!(
            listed(output),
            [
                PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6"),
                PathBuf::from("/lib64/ld-linux-x86-64.so.2")
            ]
        );
    }
}
