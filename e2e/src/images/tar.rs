//! Writing tar archives (ustar) whose bytes depend on nothing but what is put in: no times, no owners of this
//! machine, no names of users.

use std::io::{self, Read, Write};

use anyhow::{Context, Result, bail};

const BLOCK: usize = 512;
/// Longer paths would need another kind of header.
const LONGEST_PATH: usize = 99;

/// An archive being written; only `finish` makes it whole.
pub(super) struct Tar<W> {
    to: W,
}

/// Who owns an entry, and what may be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) mode: u32,
    /// User and group alike.
    pub(super) owner: u32,
}

impl<W: Write> Tar<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to }
    }

    /// A directory; `path` has no slash at its ends.
    pub(super) fn directory(&mut self, path: &str, access: Access) -> Result<()> {
        let header = header(&format!("{path}/"), access, 0, b'5')?;
        self.to.write_all(&header).context("cannot write an archive")
    }

    /// A file of exactly `size` bytes.
    pub(super) fn file(&mut self, path: &str, access: Access, size: u64, content: impl Read) -> Result<()> {
        let header = header(path, access, size, b'0')?;
        self.to.write_all(&header).context("cannot write an archive")?;
        // One more than there should be: a file that grew is noticed as well as one that shrank.
        let copied = io::copy(&mut content.take(size + 1), &mut self.to)
            .with_context(|| format!("cannot copy {path} into an archive"))?;
        if copied != size {
            bail!("{path} changed while it was put into an archive");
        }
        let beyond = usize::try_from(size % BLOCK as u64).context("less than a block")?;
        if beyond != 0 {
            self.to
                .write_all(&[0; BLOCK][beyond..])
                .context("cannot write an archive")?;
        }
        Ok(())
    }

    /// Ends the archive and gives back what it was written to.
    pub(super) fn finish(mut self) -> Result<W> {
        self.to
            .write_all(&[0; 2 * BLOCK])
            .and_then(|()| self.to.flush())
            .context("cannot end an archive")?;
        Ok(self.to)
    }
}

fn header(path: &str, access: Access, size: u64, kind: u8) -> Result<[u8; BLOCK]> {
    if path.len() > LONGEST_PATH || path.starts_with('/') {
        bail!("{path} cannot be the name of an entry");
    }
    let mut header = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path.as_bytes());
    put(100, format!("{:07o}\0", access.mode).as_bytes());
    put(108, format!("{:07o}\0", access.owner).as_bytes());
    put(116, format!("{:07o}\0", access.owner).as_bytes());
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, format!("{:011o}\0", 0).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READABLE: Access = Access {
        mode: 0o644,
        owner: 0,
    };

    #[test]
    fn a_file_of_another_size_than_announced_is_an_error() {
        for content in [&b"12"[..], b"1234"] {
            assert!(Tar::new(Vec::new()).file("a", READABLE, 3, content).is_err());
        }
        Tar::new(Vec::new()).file("a", READABLE, 3, &b"123"[..]).unwrap();
    }

    #[test]
    fn a_path_that_a_header_cannot_hold_is_an_error() {
        let long = "a".repeat(100);
        for path in [long.as_str(), "/etc/passwd"] {
            assert!(Tar::new(Vec::new()).file(path, READABLE, 0, io::empty()).is_err());
        }
    }
}
