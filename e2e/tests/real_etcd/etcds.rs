//! Real etcd processes on loopback addresses of their own, told what to do by rendered flags. They end when dropped.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::deadline::until;
use etcd_operator_etcd::endpoint::Endpoint;
use etcd_operator_etcd::flags::{Config, Figures, First, FirstState, Tuning, render};
use etcd_operator_etcd::membership::{Known, Membership};
use etcd_operator_etcd::port::{Dial, Network, Port};
use etcd_operator_etcd::url::{ClientUrl, PeerUrl};
use etcd_operator_etcd::version::Version;

/// For a machine that also compiles.
pub const LIMIT: Duration = Duration::from_mins(1);

/// What a set of members shares.
pub struct Fleet {
    pub version: EtcdVersion,
    pub bed: BedDir,
    program: PathBuf,
    network: [u8; 2],
}

/// One member, running until dropped.
pub struct Process {
    child: Child,
    log: PathBuf,
    pub config: Config,
}

impl Fleet {
    pub async fn new(version: EtcdVersion) -> Result<Self> {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        // Loopback is a whole /8: a network for each test process and fleet keeps fixed ports from clashing.
        let process = u8::try_from(std::process::id() % 200)? + 10;
        Ok(Self {
            version,
            bed: BedDir::create()?,
            program: components::find(Component::Etcd(version)).await?,
            network: [process, NEXT.fetch_add(1, Ordering::Relaxed)],
        })
    }

    /// The version as the port has it.
    pub fn number(&self) -> Version {
        self.version.number().parse().expect("a version")
    }

    fn address(&self, ordinal: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.network[0], self.network[1], ordinal + 1)
    }

    pub fn peer_url(&self, ordinal: u8) -> PeerUrl {
        format!("http://{}:2380", self.address(ordinal))
            .parse()
            .expect("a URL")
    }

    pub fn client_url(&self, ordinal: u8) -> ClientUrl {
        format!("http://{}:2379", self.address(ordinal))
            .parse()
            .expect("a URL")
    }

    pub fn metrics_url(&self, ordinal: u8) -> ClientUrl {
        format!("http://{}:2381", self.address(ordinal))
            .parse()
            .expect("a URL")
    }

    /// What a member needs to be told, and no more.
    pub fn config(&self, ordinal: u8, state: FirstState, members: &[u8]) -> Config {
        let name = |ordinal: u8| format!("c-{ordinal}");
        Config {
            name: name(ordinal),
            data_dir: self.bed.path().join(name(ordinal)).display().to_string(),
            listen_peer: vec![self.peer_url(ordinal)],
            listen_client: vec![self.client_url(ordinal)],
            listen_metrics: Vec::new(),
            advertise_peer: vec![self.peer_url(ordinal)],
            advertise_client: vec![self.client_url(ordinal)],
            first: Some(First {
                state,
                token: "fleet".to_owned(),
                members: members
                    .iter()
                    .map(|&ordinal| (name(ordinal), self.peer_url(ordinal)))
                    .collect(),
            }),
            client_tls: None,
            peer_tls: None,
            tuning: Tuning {
                heartbeat_ms: Some(50),
                election_ms: Some(500),
                ..Tuning::default()
            },
            figures: Figures::Basic,
            check_at_start: false,
            check_every: None,
            check_compactions_every: None,
            stop_serving_on_defrag: false,
            max_learners: None,
            extra: Vec::new(),
        }
    }

    pub fn start(&self, config: Config) -> Result<Process> {
        self.start_on(&self.number(), &self.program, config)
    }

    /// Starts a member with another version.
    pub fn start_on(&self, version: &Version, program: &Path, config: Config) -> Result<Process> {
        let arguments = render(&config, version)?;
        let log = self.bed.path().join(format!("{}.log", config.name));
        let output = std::fs::File::options().create(true).append(true).open(&log)?;
        let child = Command::new(program)
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()?;
        let process = Process { child, log, config };
        self.bed.record(process.child.id())?;
        Ok(process)
    }

    /// So many members, bootstrapped together, all serving.
    pub async fn bootstrap(&self, size: u8) -> Result<Vec<Process>> {
        let ordinals: Vec<u8> = (0..size).collect();
        let mut processes = Vec::new();
        for &ordinal in &ordinals {
            processes.push(self.start(self.config(ordinal, FirstState::New, &ordinals))?);
        }
        for (&ordinal, process) in ordinals.iter().zip(&mut processes) {
            self.serving(ordinal, process).await?;
        }
        Ok(processes)
    }

    /// A client of a member that answers linearizable reads.
    pub async fn serving(&self, ordinal: u8, process: &mut Process) -> Result<Box<dyn Port>> {
        serving(&Endpoint::plain(self.client_url(ordinal)), process).await
    }

    pub async fn client(&self, ordinal: u8) -> Result<Box<dyn Port>> {
        Ok(Network.dial(&Endpoint::plain(self.client_url(ordinal))).await?)
    }

    /// What one member reads.
    pub async fn known(&self, ordinal: u8) -> Result<Known> {
        match self.client(ordinal).await?.membership().await {
            Membership::Known(known) => Ok(known),
            Membership::Unknown(why) => bail!("unknown: {why}"),
        }
    }

    /// Runs etcdctl of this version against one member.
    pub async fn etcdctl(&self, ordinal: u8, arguments: &[&str]) -> Result<std::process::Output> {
        let program = components::find(Component::Etcdctl(self.version)).await?;
        let output = Command::new(program)
            .env_clear()
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.client_url(ordinal)))
            .args(arguments)
            .output()?;
        Ok(output)
    }
}

impl Fleet {
    /// A directory with the programs of this version, as an image has them.
    pub async fn programs(&self) -> Result<PathBuf> {
        let directory = self.bed.path().join("programs");
        std::fs::create_dir_all(&directory)?;
        let mut all = vec![
            ("etcd", Component::Etcd(self.version)),
            ("etcdctl", Component::Etcdctl(self.version)),
        ];
        if self.version.has_etcdutl() {
            all.push(("etcdutl", Component::Etcdutl(self.version)));
        }
        for (name, component) in all {
            let link = directory.join(name);
            if !link.exists() {
                std::os::unix::fs::symlink(components::find(component).await?, link)?;
            }
        }
        Ok(directory)
    }
}

/// A client of whoever is there, once it answers linearizable reads.
pub async fn serving(endpoint: &Endpoint, process: &mut Process) -> Result<Box<dyn Port>> {
    until(&format!("{} serves", endpoint.url), LIMIT, || {
        let alive = process.check();
        async move {
            alive?;
            let Ok(client) = Network.dial(endpoint).await else {
                return Ok(None);
            };
            Ok(client.position().await.is_ok().then_some(client))
        }
    })
    .await
}

impl Process {
    /// An error with its last words if it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}):\n{}", self.config.name, tail(&self.log)),
        }
    }

    /// Ends it without asking.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// With what it ended, 137 if by a signal; none while it runs.
    pub fn exit_code(&mut self) -> Option<i32> {
        let status = self.child.try_wait().expect("a child can be waited for")?;
        Some(status.code().unwrap_or(137))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// Whether something listens there.
pub fn is_taken(url: &ClientUrl) -> Result<bool> {
    let address = format!("{}:{}", url.host(), url.port());
    match TcpListener::bind(&address) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Ok(true),
        Err(error) => Err(error).with_context(|| format!("cannot try {address}")),
    }
}
