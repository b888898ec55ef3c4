//! Images of the bed's containers, made from built binaries: no registry, no container engine. Each is one archive
//! in the cache, found again as long as what is in it stays the same. Importing them is the node's affair.

mod archive;
mod linkage;
pub mod shipped;
mod tar;
mod tree;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::components::cache::Entry;
use crate::components::{self, Component, EtcdVersion};
use archive::Run;
use tar::Access;
use tree::Tree;

/// What a pod's own container runs: nothing, until it is ended.
pub const PAUSE: &str = "bed.local/pause:1";
/// The name server.
pub const DNS: &str = "bed.local/coredns:1";
/// What scenarios run in pods; its verbs are in `e2e/tools/probe`.
pub const TOOLS: &str = "bed.local/tools:1";
/// An object store with the interface of S3.
pub const S3: &str = "bed.local/versitygw:1";
/// The operator as the chart names it while it is developed.
pub const OPERATOR: &str = "etcd-operator:dev";

/// Where upstream publishes etcd: what a cluster asks for unless it says otherwise.
const ETCD_REPOSITORY: &str = "quay.io/coreos/etcd";
/// The user that has no rights, of images without a shell.
const NONROOT: &str = "65532:65532";
/// The name of the archive in its entry of the cache.
const ARCHIVE: &str = "image.tar";

/// Archives of what every node needs.
pub async fn base() -> Result<Vec<PathBuf>> {
    Ok(vec![pause().await?, dns().await?, tools().await?])
}

/// The name under which the archive of [`etcd`] is asked for.
pub fn etcd_reference(version: EtcdVersion) -> String {
    reference(ETCD_REPOSITORY, version)
}

fn reference(repository: &str, version: EtcdVersion) -> String {
    format!("{repository}:v{}", version.number())
}

/// The archive of an etcd, laid out as upstream's images are since they have no shell. The oldest had one, but what runs
/// without it runs with it; of what they had besides, people type `env`.
pub async fn etcd(version: EtcdVersion) -> Result<PathBuf> {
    etcd_in(ETCD_REPOSITORY, version).await
}

/// The same in another repository.
pub async fn etcd_in(repository: &str, version: EtcdVersion) -> Result<PathBuf> {
    etcd_named(&reference(repository, version), version).await
}

/// The same under any reference, which may name another version.
pub async fn etcd_named(reference: &str, version: EtcdVersion) -> Result<PathBuf> {
    let tree = etcd_tree(version).await?;
    let name = format!("etcd-{}", version.number());
    make(&name, etcd_run(reference.to_owned()), tree).await
}

/// The same in another repository, but the member of this name panics when it starts.
pub async fn etcd_panicking_as(member: &str, repository: &str, version: EtcdVersion) -> Result<PathBuf> {
    let etcd = components::find(Component::Etcd(version)).await?;
    let probe = components::find(Component::Probe).await?;
    let tree = etcd_tree(version)
        .await?
        .executable("usr/local/bin/etcd", probe)
        .executable("usr/local/libexec/etcd", etcd)
        .text("etc/panics-as", member);
    let name = format!("etcd-{}-panicking", version.number());
    make(&name, etcd_run(reference(repository, version)), tree).await
}

fn etcd_run(reference: String) -> Run {
    Run {
        reference,
        command: vec!["/usr/local/bin/etcd"],
        directory: "/var/lib/etcd/",
        ports: &[2379, 2380],
        ..Run::default()
    }
}

async fn etcd_tree(version: EtcdVersion) -> Result<Tree> {
    let mut binaries = vec![Component::Etcd(version), Component::Etcdctl(version)];
    if version.has_etcdutl() {
        binaries.push(Component::Etcdutl(version));
    }
    let mut tree = without_shell().directory("var/etcd").directory("var/lib/etcd");
    for binary in binaries {
        let path = components::find(binary).await?;
        for library in linkage::libraries(&path).await? {
            tree = tree.executable(&library.to_string_lossy(), library.clone());
        }
        tree = into_path(tree, &path)?;
    }
    if version <= EtcdVersion::V3_3_27 {
        let probe = components::find(Component::Probe).await?;
        tree = tree.executable("usr/bin/env", probe);
    }
    Ok(tree)
}

/// The archive of the operator, as it is while it is developed.
pub async fn operator(binary: &Path) -> Result<PathBuf> {
    operator_named(binary, OPERATOR).await
}

/// The archive of an operator under this reference.
pub async fn operator_named(binary: &Path, reference: &str) -> Result<PathBuf> {
    let (run, tree) = shipped::image(binary, reference).await?;
    make("operator", run, tree).await
}

/// The archive of [`S3`].
pub async fn s3() -> Result<PathBuf> {
    let run = Run {
        reference: S3.to_owned(),
        entrypoint: vec!["/usr/local/bin/versitygw"],
        ..Run::default()
    };
    let versitygw = components::find(Component::Versitygw).await?;
    make("versitygw", run, into_path(without_shell(), &versitygw)?).await
}

async fn pause() -> Result<PathBuf> {
    let run = Run {
        reference: PAUSE.to_owned(),
        entrypoint: vec!["/usr/local/bin/probe", "pause"],
        user: NONROOT,
        ..Run::default()
    };
    let probe = components::find(Component::Probe).await?;
    make("pause", run, into_path(Tree::default(), &probe)?).await
}

async fn dns() -> Result<PathBuf> {
    let run = Run {
        reference: DNS.to_owned(),
        entrypoint: vec!["/usr/local/bin/coredns"],
        ..Run::default()
    };
    let coredns = components::find(Component::CoreDns).await?;
    make("coredns", run, into_path(without_shell(), &coredns)?).await
}

async fn tools() -> Result<PathBuf> {
    let run = Run {
        reference: TOOLS.to_owned(),
        command: vec!["probe", "pause"],
        ..Run::default()
    };
    let probe = components::find(Component::Probe).await?;
    make("tools", run, into_path(without_shell(), &probe)?).await
}

fn into_path(tree: Tree, binary: &Path) -> Result<Tree> {
    let name = binary
        .file_name()
        .and_then(|name| name.to_str())
        .with_context(|| format!("{} has no name", binary.display()))?;
    Ok(tree.executable(&format!("usr/local/bin/{name}"), binary.to_owned()))
}

/// What distroless images have around the binaries.
fn without_shell() -> Tree {
    let shared = Access {
        mode: 0o1777,
        owner: 0,
    };
    let own = Access {
        mode: 0o700,
        owner: 0,
    };
    Tree::default()
        .text(
            "etc/passwd",
            "root:x:0:0:root:/root:/sbin/nologin\n\
             nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n\
             nonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin\n",
        )
        .text(
            "etc/group",
            "root:x:0:\nnobody:x:65534:\ntty:x:5:\nstaff:x:50:\nnonroot:x:65532:\n",
        )
        .text("etc/nsswitch.conf", "hosts: files dns\n")
        .directory_of("root", own)
        .directory_of("tmp", shared)
        .directory("run")
        .directory("var/tmp")
}

async fn make(name: &str, run: Run, tree: Tree) -> Result<PathBuf> {
    let (digest, tree) = tokio::task::spawn_blocking(move || anyhow::Ok((tree.digest()?, tree)))
        .await
        .context("hashing an image was ended")??;
    let entry = Entry::new(&format!("image-{name}"), &[&digest, run.inputs().as_bytes()])?;
    let directory = entry
        .fill(|part| async move {
            tokio::task::spawn_blocking(move || {
                archive::write(&run, &tree, &part.join(ARCHIVE), &part.join("layer.tar")).map(drop)
            })
            .await
            .context("writing an image was ended")?
        })
        .await?;
    Ok(directory.join(ARCHIVE))
}
