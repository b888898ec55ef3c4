//! The operator's image as it is shipped: one static program, the authorities of the web, a user without rights, and
//! nothing else. The `Dockerfile` makes the same with an engine.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::archive::{self, Run};
use super::tar::Access;
use super::tree::Tree;
use super::{NONROOT, linkage};

/// Where Go, OpenSSL and our own TLS look for authorities.
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";
/// The most an image may take.
pub const LARGEST: u64 = 40_000_000;

/// What there is to say about a build.
#[derive(Clone, Debug)]
pub struct Build {
    /// Such as `0.1.0`.
    pub version: String,
    /// The commit, where it is known.
    pub revision: String,
}

/// An image that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// By which registries know it.
    pub digest: String,
    /// Bytes of the archive.
    pub size: u64,
}

/// Writes the archive of a binary to `path`. The same binary gives the same bytes.
pub async fn write(binary: &Path, reference: &str, build: &Build, path: &Path) -> Result<Written> {
    let (mut run, tree) = image(binary, reference).await?;
    run.labels = labels(build);
    let digest = archive::write(&run, &tree, path, &path.with_extension("layer"))?;
    let size = fs::metadata(path)
        .with_context(|| format!("cannot look at {}", path.display()))?
        .len();
    ensure!(
        size <= LARGEST,
        "the image takes {size} bytes, more than {LARGEST}"
    );
    Ok(Written { digest, size })
}

/// What is in it and how it is run. Its binary is copied into pods of any etcd, so a dynamic one is refused.
pub(super) async fn image(binary: &Path, reference: &str) -> Result<(Run, Tree)> {
    if !linkage::libraries(binary).await?.is_empty() {
        bail!(
            "{} is not linked statically: it would not run in an image without libraries",
            binary.display()
        );
    }
    let tree = around_it()
        .text(AUTHORITIES, authorities()?)
        .executable("usr/local/bin/etcd-operator", binary.to_owned());
    let run = Run {
        reference: reference.to_owned(),
        entrypoint: vec!["/usr/local/bin/etcd-operator"],
        user: NONROOT,
        ..Run::default()
    };
    Ok((run, tree))
}

/// The few files that a program asks a system for. The `Dockerfile` writes the same.
fn around_it() -> Tree {
    let shared = Access {
        mode: 0o1777,
        owner: 0,
    };
    Tree::default()
        .text(
            "etc/passwd",
            "nonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin\n",
        )
        .text("etc/group", "nonroot:x:65532:\n")
        .text("etc/nsswitch.conf", "hosts: files dns\n")
        .directory_of("tmp", shared)
}

fn labels(build: &Build) -> Vec<(&'static str, String)> {
    let fixed = [
        ("org.opencontainers.image.title", "etcd-operator"),
        (
            "org.opencontainers.image.description",
            "Runs etcd clusters on Kubernetes, backs them up and restores them.",
        ),
        ("org.opencontainers.image.licenses", "Apache-2.0"),
    ];
    let mut labels: Vec<_> = fixed.map(|(key, value)| (key, value.to_owned())).into();
    labels.push(("org.opencontainers.image.version", build.version.clone()));
    labels.push(("org.opencontainers.image.revision", build.revision.clone()));
    labels
}

/// The authorities that the program itself falls back on, pinned by the lock file, as one file of PEM.
fn authorities() -> Result<String> {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in STANDARD.encode(certificate).as_bytes().chunks(64) {
            writeln!(text, "{}", std::str::from_utf8(line)?)?;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::bed_dir::BedDir;

    fn build() -> Build {
        Build {
            version: String::from("1.2.3"),
            revision: String::from("abc"),
        }
    }

    #[test]
    fn the_authorities_are_read_back_as_they_were() {
        let text = authorities().unwrap();
        let read: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes())
            .map(|one| one.unwrap())
            .collect();
        assert_eq!(read.as_slice(), webpki_root_certs::TLS_SERVER_ROOT_CERTS);
        assert!(read.len() > 100, "{}", read.len());
    }

    #[tokio::test]
    async fn one_binary_is_one_digest_wherever_it_lies() {
        // Static, as what is shipped is.
        let mut digests = Vec::new();
        for name in ["a", "another"] {
            let bed = BedDir::create().unwrap();
            let binary = bed.write(name, "#!/bin/sh\n").unwrap();
            let path = bed.path().join(format!("{name}.tar"));
            let written = write(&binary, "etcd-operator:1.2.3", &build(), &path)
                .await
                .unwrap();
            let bytes = fs::read(&path).unwrap();
            assert_eq!(written.size, bytes.len() as u64);
            digests.push((written, bytes));
        }
        assert_eq!(digests[0], digests[1]);
        assert!(digests[0].0.digest.starts_with("sha256:"));
    }

    #[tokio::test]
    async fn an_image_says_what_it_is_and_whom_it_runs_as() {
        let bed = BedDir::create().unwrap();
        let binary = bed.write("binary", "#!/bin/sh\n").unwrap();
        let path = bed.path().join("image.tar");
        write(&binary, "etcd-operator:1.2.3", &build(), &path)
            .await
            .unwrap();
        let all = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        for part in [
            r#""org.opencontainers.image.version":"1.2.3""#,
            r#""org.opencontainers.image.revision":"abc""#,
            r#""org.opencontainers.image.licenses":"Apache-2.0""#,
            r#""User":"65532:65532""#,
            r#""Entrypoint":["/usr/local/bin/etcd-operator"]"#,
            "etc/ssl/certs/ca-certificates.crt",
        ] {
            assert!(all.contains(part), "{part}");
        }
    }

    #[tokio::test]
    async fn what_is_too_large_is_not_shipped() {
        let bed = BedDir::create().unwrap();
        let binary = bed.path().join("binary");
        fs::File::create(&binary).unwrap().set_len(LARGEST).unwrap();
        let path = bed.path().join("image.tar");
        let refused = write(&binary, "etcd-operator:1", &build(), &path).await;
        assert!(refused.unwrap_err().to_string().contains("more than 40000000"));
    }
}
