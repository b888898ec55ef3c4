//! An image as one file that containerd, `docker load`, kind, k3d and minikube all take: the layout of OCI, with
//! the manifest of `docker save` beside it. One layer, not compressed: it never travels further than this machine.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::tar::{Access, Tar};
use super::tree::Tree;

const EPOCH: &str = "1970-01-01T00:00:00Z";
const BLOB: Access = Access {
    mode: 0o644,
    owner: 0,
};

/// What an image is, apart from its files.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// The name it is asked for by, with its tag.
    pub(super) reference: String,
    pub(super) entrypoint: Vec<&'static str>,
    pub(super) command: Vec<&'static str>,
    pub(super) directory: &'static str,
    /// Empty means root, as upstream's images have it.
    pub(super) user: &'static str,
    pub(super) ports: &'static [u16],
    /// What people are told about it, in the keys of OCI.
    pub(super) labels: Vec<(&'static str, String)>,
}

impl Run {
    /// Tells two apart.
    pub(super) fn inputs(&self) -> String {
        format!("{self:?}")
    }

    fn config(&self, layer: &str) -> Value {
        let ports: serde_json::Map<String, Value> = self
            .ports
            .iter()
            .map(|port| (format!("{port}/tcp"), json!({})))
            .collect();
        let mut config = json!({
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "WorkingDir": self.directory,
            "User": self.user,
        });
        if !self.entrypoint.is_empty() {
            config["Entrypoint"] = json!(self.entrypoint);
        }
        if !self.command.is_empty() {
            config["Cmd"] = json!(self.command);
        }
        if !ports.is_empty() {
            config["ExposedPorts"] = Value::Object(ports);
        }
        if !self.labels.is_empty() {
            let labels = self
                .labels
                .iter()
                .map(|(key, value)| ((*key).to_owned(), json!(value)));
            config["Labels"] = Value::Object(labels.collect());
        }
        json!({
            "architecture": architecture(),
            "os": "linux",
            "created": EPOCH,
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer]},
            "history": [{"created": EPOCH, "created_by": "etcd-operator"}],
        })
    }
}

/// Writes the archive to `path`, and gives the digest by which registries know the image; `layer` is a scratch file
/// beside it.
pub(super) fn write(run: &Run, tree: &Tree, path: &Path, layer: &Path) -> Result<String> {
    let unwritable = |path: &Path| format!("cannot write {}", path.display());
    let mut hashed = tree.write(Hashed {
        to: BufWriter::new(File::create(layer).with_context(|| unwritable(layer))?),
        hash: Sha256::new(),
        size: 0,
    })?;
    hashed.flush().with_context(|| unwritable(layer))?;
    let layer_blob = Blob {
        digest: hex(&hashed.hash.finalize()),
        size: hashed.size,
    };

    let config = run.config(&layer_blob.name()).to_string();
    let config_blob = Blob::of(&config);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config_blob.descriptor("application/vnd.oci.image.config.v1+json"),
        "layers": [layer_blob.descriptor("application/vnd.oci.image.layer.v1.tar")],
    })
    .to_string();
    let manifest_blob = Blob::of(&manifest);
    let mut listed = manifest_blob.descriptor("application/vnd.oci.image.manifest.v1+json");
    listed["annotations"] = json!({
        "io.containerd.image.name": full_name(&run.reference),
        "org.opencontainers.image.ref.name": run.reference.rsplit_once(':').map_or("latest", |(_, tag)| tag),
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [listed],
    });
    let docker = json!([{
        "Config": config_blob.path(),
        "RepoTags": [run.reference],
        "Layers": [layer_blob.path()],
    }]);

    let file = BufWriter::new(File::create(path).with_context(|| unwritable(path))?);
    let mut tar = Tar::new(file);
    let mut add = |path: &str, text: &str| tar.file(path, BLOB, text.len() as u64, text.as_bytes());
    add("oci-layout", &json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
    add("index.json", &index.to_string())?;
    add("manifest.json", &docker.to_string())?;
    add(&manifest_blob.path(), &manifest)?;
    add(&config_blob.path(), &config)?;
    let content = File::open(layer).with_context(|| format!("cannot open {}", layer.display()))?;
    tar.file(&layer_blob.path(), BLOB, layer_blob.size, content)?;
    tar.finish()?;
    fs::remove_file(layer).with_context(|| format!("cannot remove {}", layer.display()))?;
    Ok(manifest_blob.name())
}

struct Blob {
    digest: String,
    size: u64,
}

impl Blob {
    fn of(text: &str) -> Self {
        Self {
            digest: hex(&Sha256::digest(text)),
            size: text.len() as u64,
        }
    }

    fn name(&self) -> String {
        format!("sha256:{}", self.digest)
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({"mediaType": media_type, "digest": self.name(), "size": self.size})
    }
}

/// Hashes what goes through.
struct Hashed<W> {
    to: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// The kubelet asks for `docker.io/library/x` when a pod says `x`.
fn full_name(reference: &str) -> String {
    match reference.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => reference.to_owned(),
        Some(_) => format!("docker.io/{reference}"),
        None => format!("docker.io/library/{reference}"),
    }
}

/// This machine's, in the words of images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_stored_under_the_name_the_kubelet_will_ask_for() {
        assert_eq!(
            full_name("etcd-operator:dev"),
            "docker.io/library/etcd-operator:dev"
        );
        assert_eq!(full_name("me/etcd-operator:1"), "docker.io/me/etcd-operator:1");
        assert_eq!(
            full_name("quay.io/coreos/etcd:v3.6.16"),
            "quay.io/coreos/etcd:v3.6.16"
        );
        assert_eq!(full_name("localhost/x:1"), "localhost/x:1");
    }

    #[test]
    fn the_same_content_is_the_same_archive_and_other_content_another() {
        let bed = crate::bed_dir::BedDir::create().unwrap();
        let archive = |name: &str, text: &'static str| {
            let run = Run {
                reference: String::from("x:1"),
                ..Run::default()
            };
            let tree = Tree::default().text("b/c", text).directory("a");
            let path = bed.path().join(name);
            write(&run, &tree, &path, &bed.path().join("layer")).unwrap();
            (fs::read(path).unwrap(), tree.digest().unwrap())
        };
        assert_eq!(archive("1", "text"), archive("2", "text"));
        assert_ne!(archive("1", "text").0, archive("3", "other").0);
        assert_ne!(archive("1", "text").1, archive("3", "other").1);
    }

    #[test]
    fn an_archive_is_read_by_another_program() {
        let bed = crate::bed_dir::BedDir::create().unwrap();
        let path = bed.path().join("x.tar");
        let run = Run {
            reference: String::from("x:1"),
            ports: &[2379],
            ..Run::default()
        };
        let tree = Tree::default().text("etc/a", "content\n");
        write(&run, &tree, &path, &bed.path().join("layer")).unwrap();
        let output = std::process::Command::new("tar")
            .args(["--extract", "--to-stdout", "--file"])
            .arg(&path)
            .arg("manifest.json")
            .output()
            .unwrap();
        let manifest: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(manifest[0]["RepoTags"], json!(["x:1"]));
        let layer = manifest[0]["Layers"][0].as_str().unwrap();
        let inner = bed.path().join("inner");
        fs::create_dir(&inner).unwrap();
        for (archive, member) in [(path.as_path(), layer), (&inner.join(layer), "etc/a")] {
            let status = std::process::Command::new("tar")
                .args(["--extract", "--file"])
                .arg(archive)
                .arg("--directory")
                .arg(&inner)
                .arg(member)
                .status()
                .unwrap();
            assert!(status.success(), "{member}");
        }
        assert_eq!(fs::read_to_string(inner.join("etc/a")).unwrap(), "content\n");
    }
}
