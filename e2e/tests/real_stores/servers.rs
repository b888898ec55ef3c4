//! Object stores as processes on loopback, with a directory and a private authority of their own. They end when dropped.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::deadline::until;
use etcd_operator_store::Policy;
use etcd_operator_store::secret::Secret;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// The bucket that every server has.
pub const BUCKET: &str = "my-bucket";

/// Real stores want parts of this size.
pub const PART: u64 = 5 << 20;

/// For a machine that also compiles.
const LIMIT: Duration = Duration::from_mins(1);

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    Plain,
    Tls,
}

/// A server, running until dropped.
pub struct Server {
    child: Child,
    pub endpoint: String,
    pub ca: Option<Secret>,
    _bed: BedDir,
}

/// What a server is started with.
pub struct Place {
    bed: BedDir,
    pub port: u16,
    pub speech: Speech,
    authority: String,
}

impl Place {
    pub fn new(speech: Speech) -> Result<Self> {
        let bed = BedDir::create()?;
        // It is free now; nothing else here listens on ports the system hands out.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let authority = certificates(bed.path())?;
        std::fs::create_dir_all(bed.path().join("data").join(BUCKET))?;
        Ok(Self {
            bed,
            port,
            speech,
            authority,
        })
    }

    pub fn data(&self) -> PathBuf {
        self.bed.path().join("data")
    }

    pub fn certificate(&self) -> PathBuf {
        self.bed.path().join("tls.crt")
    }

    pub fn key(&self) -> PathBuf {
        self.bed.path().join("tls.key")
    }

    /// Starts it and waits until it listens.
    pub async fn start(self, mut command: Command) -> Result<Server> {
        let log = self.bed.path().join("log");
        let output = std::fs::File::create(&log)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut server = Server {
            child: command
                .spawn()
                .with_context(|| format!("cannot start {command:?}"))?,
            endpoint: match self.speech {
                Speech::Plain => format!("http://127.0.0.1:{}", self.port),
                Speech::Tls => format!("https://127.0.0.1:{}", self.port),
            },
            ca: (self.speech == Speech::Tls).then(|| secret(&[("ca.crt", &self.authority)])),
            _bed: self.bed,
        };
        let address = ("127.0.0.1", self.port);
        let what = format!("{command:?} listens");
        let up = until(&what, LIMIT, || {
            let ended = server.child.try_wait();
            let log = &log;
            async move {
                if let Some(status) = ended? {
                    let said = std::fs::read_to_string(log).unwrap_or_default();
                    bail!("it ended with {status}: {said}");
                }
                Ok(tokio::net::TcpStream::connect(address)
                    .await
                    .is_ok()
                    .then_some(()))
            }
        });
        up.await?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already if this fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn secret(pairs: &[(&str, &str)]) -> Secret {
    let data: BTreeMap<String, Vec<u8>> = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
        .collect();
    Secret::from(data)
}

/// Patient enough for a machine that also compiles.
pub fn policy() -> Policy {
    Policy {
        initial_backoff: Duration::from_millis(50),
        ..Policy::default()
    }
}

/// Leaves the server's certificate and key in `into`; gives the authority's certificate.
fn certificates(into: &Path) -> Result<String> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let authority = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);
    let leaf_key = KeyPair::generate()?;
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?
        .signed_by(&leaf_key, &issuer)?;
    std::fs::write(into.join("tls.crt"), leaf.pem())?;
    std::fs::write(into.join("tls.key"), leaf_key.serialize_pem())?;
    Ok(authority)
}
