//! The files of an image before they are an archive: a tree that knows its parents and its order, so that the same
//! content always gives the same bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::tar::{Access, Tar};

const DIRECTORY: Access = Access {
    mode: 0o755,
    owner: 0,
};
const EXECUTABLE: Access = Access {
    mode: 0o755,
    owner: 0,
};
const READABLE: Access = Access {
    mode: 0o644,
    owner: 0,
};

/// Files and directories by their absolute paths without the first slash.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// In this order a directory comes before what is in it.
    nodes: BTreeMap<String, Node>,
}

#[derive(Debug)]
enum Node {
    Directory(Access),
    Text(String),
    Executable(PathBuf),
}

impl Tree {
    pub(super) fn directory(self, path: &str) -> Self {
        self.directory_of(path, DIRECTORY)
    }

    pub(super) fn directory_of(mut self, path: &str, access: Access) -> Self {
        self.put(path, Node::Directory(access));
        self
    }

    pub(super) fn text(mut self, path: &str, content: impl Into<String>) -> Self {
        self.put(path, Node::Text(content.into()));
        self
    }

    pub(super) fn executable(mut self, path: &str, from: PathBuf) -> Self {
        self.put(path, Node::Executable(from));
        self
    }

    fn put(&mut self, path: &str, node: Node) {
        let path = path.trim_matches('/');
        for (end, _) in path.match_indices('/') {
            self.nodes
                .entry(path[..end].to_owned())
                .or_insert(Node::Directory(DIRECTORY));
        }
        self.nodes.insert(path.to_owned(), node);
    }

    /// Writes it as a layer.
    pub(super) fn write<W: Write>(&self, to: W) -> Result<W> {
        let mut tar = Tar::new(to);
        for (path, node) in &self.nodes {
            match node {
                Node::Directory(access) => tar.directory(path, *access)?,
                Node::Text(text) => tar.file(path, READABLE, text.len() as u64, text.as_bytes())?,
                Node::Executable(from) => {
                    let (file, size) = open(from)?;
                    tar.file(path, EXECUTABLE, size, file)?;
                }
            }
        }
        tar.finish()
    }

    /// Tells two trees apart without writing them.
    pub(super) fn digest(&self) -> Result<Vec<u8>> {
        let mut all = Sha256::new();
        for (path, node) in &self.nodes {
            all.update(format!("{path}\n"));
            match node {
                Node::Directory(access) => all.update(format!("{access:?}\n")),
                Node::Text(text) => all.update(format!("{text:?}\n")),
                Node::Executable(from) => {
                    let (mut file, size) = open(from)?;
                    all.update(format!("{size}\n"));
                    let mut buffer = vec![0; 1 << 20];
                    loop {
                        let read = file
                            .read(&mut buffer)
                            .with_context(|| format!("cannot read {}", from.display()))?;
                        if read == 0 {
                            break;
                        }
                        all.update(&buffer[..read]);
                    }
                }
            }
        }
        Ok(all.finalize().to_vec())
    }
}

fn open(path: &PathBuf) -> Result<(File, u64)> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let size = file
        .metadata()
        .with_context(|| format!("cannot look at {}", path.display()))?
        .len();
    Ok((file, size))
}
