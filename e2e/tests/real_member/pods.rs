//! A member as a pod would run it: the real binary in front of a real etcd, on loopback ports of its own. It ends when
//! dropped.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use etcd_operator_api::contract::{self, Identity, Mode, Permit, Report};
use etcd_operator_e2e::bed_dir::BedDir;
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::operator;
use etcd_operator_e2e::process::{ProcessId, Sent};
use etcd_operator_etcd::endpoint::{Endpoint, Tls};
use etcd_operator_etcd::flags::{ClientTls, Config, Figures, PeerTls, Tuning, render};
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::port::{Dial, Network, Port};
use etcd_operator_etcd::url::ClientUrl;
use etcd_operator_etcd::version::{Minor, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// For a machine that also compiles.
pub const LIMIT: Duration = Duration::from_mins(1);

/// What the cluster of a test has.
pub const CLUSTER: &str = "cluster-uid";

/// A pod of a member.
pub struct Pod {
    pub name: String,
    pub version: EtcdVersion,
    pub bed: BedDir,
    /// Peers, clients, report: in this order.
    pub ports: [u16; 3],
    /// Where it listens.
    pub address: &'static str,
    /// The host in its URLs.
    pub host: String,
    pub incarnation: i64,
    /// The minor version that its template names, if not that of its etcd.
    pub template_minor: Option<String>,
    /// Programs, with arguments, in front of the binary.
    pub before: Vec<String>,
    /// The directory with volume and permit as this test sees it, and as the binary does.
    pub outside: PathBuf,
    pub inside: PathBuf,
    /// The binary and etcd as the binary sees them, if not where they were built.
    pub programs: Option<[&'static str; 2]>,
    pub tls: Option<Files>,
    pub user: Option<u32>,
    pub uid: String,
    process: Option<Child>,
}

/// The minor version of a version of etcd.
pub fn minor(version: EtcdVersion) -> Result<String> {
    let minor = Minor::of(&version.number().parse()?).context("an unknown minor version")?;
    Ok(minor.to_string())
}

/// Certificates in files.
#[derive(Clone, Debug)]
pub struct Files {
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Pod {
    /// A pod with an empty volume; nothing runs.
    pub fn new(name: &str, version: EtcdVersion) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let bed = BedDir::create()?;
        fs::create_dir(bed.path().join("volume"))?;
        Ok(Self {
            name: name.to_owned(),
            version,
            outside: bed.path().to_owned(),
            inside: bed.path().to_owned(),
            bed,
            ports: [free_port()?, free_port()?, free_port()?],
            address: "127.0.0.1",
            host: "127.0.0.1".to_owned(),
            incarnation: 1,
            template_minor: None,
            before: Vec::new(),
            programs: None,
            tls: None,
            user: None,
            uid: format!("pod-{}", NEXT.fetch_add(1, Ordering::Relaxed)),
            process: None,
        })
    }

    /// A pod of another member of the same cluster: it answers clients at the same port.
    pub fn beside(first: &Self, name: &str) -> Result<Self> {
        let mut pod = Self::new(name, first.version)?;
        pod.address = "127.0.0.2";
        pod.address.clone_into(&mut pod.host);
        pod.ports[1] = first.ports[1];
        pod.tls.clone_from(&first.tls);
        Ok(pod)
    }

    pub fn number(&self) -> Version {
        self.version.number().parse().expect("a version")
    }

    /// Its volume as this test sees it.
    pub fn volume(&self) -> PathBuf {
        self.outside.join("volume")
    }

    pub fn permit_file(&self) -> PathBuf {
        self.outside.join("permit")
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub fn peer_url(&self) -> String {
        format!("{}://{}:{}", self.scheme(), self.host, self.ports[0])
    }

    pub fn client_url(&self) -> ClientUrl {
        let url = format!("{}://{}:{}", self.scheme(), self.host, self.ports[1]);
        url.parse().expect("a URL")
    }

    /// `NAME=URL`
    pub fn entry(&self) -> String {
        format!("{}={}", self.name, self.peer_url())
    }

    fn config(&self) -> Config {
        let at = |port: u16| format!("{}://{}:{port}", self.scheme(), self.address);
        let file = |path: &Path| path.display().to_string();
        let metrics = format!("http://{}:{}", self.address, self.ports[2]);
        Config {
            name: self.name.clone(),
            data_dir: self.inside.join("volume/data").display().to_string(),
            listen_peer: vec![at(self.ports[0]).parse().expect("a URL")],
            listen_client: vec![at(self.ports[1]).parse().expect("a URL")],
            listen_metrics: Feature::MetricsAddress
                .is_in(&self.number())
                .then(|| metrics.parse().expect("a URL"))
                .into_iter()
                .collect(),
            advertise_peer: vec![self.peer_url().parse().expect("a URL")],
            advertise_client: vec![self.client_url()],
            first: None,
            client_tls: self.tls.as_ref().map(|tls| ClientTls {
                certificate: file(&tls.certificate),
                key: file(&tls.key),
                authority: Some(file(&tls.authority)),
            }),
            peer_tls: self.tls.as_ref().map(|tls| PeerTls {
                certificate: file(&tls.certificate),
                key: file(&tls.key),
                authority: file(&tls.authority),
            }),
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

    /// The words that are run.
    pub async fn words(&self) -> Result<Vec<String>> {
        let text = |path: &Path| path.display().to_string();
        let [operator, etcd] = match self.programs {
            Some(programs) => programs.map(str::to_owned),
            None => [
                text(operator::binary().await?),
                text(&components::find(Component::Etcd(self.version)).await?),
            ],
        };
        let template_minor = match &self.template_minor {
            Some(minor) => minor.clone(),
            None => minor(self.version)?,
        };
        let mut words = self.before.clone();
        words.extend([operator, "member".to_owned()]);
        for (flag, value) in [
            ("cluster-uid", CLUSTER.to_owned()),
            ("incarnation", self.incarnation.to_string()),
            ("volume", text(&self.inside.join("volume"))),
            ("permit", text(&self.inside.join("permit"))),
            ("name", self.name.clone()),
            ("pod-uid", self.uid.clone()),
            ("pod-ip", self.address.to_owned()),
            ("report-port", self.ports[2].to_string()),
            ("peer-port", self.ports[0].to_string()),
            ("etcd-minor", template_minor),
        ] {
            words.push(format!("--{flag}={value}"));
        }
        if let Some(tls) = &self.tls {
            words.push(format!("--client-ca={}", text(&tls.authority)));
            words.push(format!("--client-cert={}", text(&tls.certificate)));
            words.push(format!("--client-key={}", text(&tls.key)));
        }
        words.extend(["--".to_owned(), etcd]);
        words.extend(render(&self.config(), &self.number())?);
        Ok(words)
    }

    /// Starts the container.
    pub async fn start(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "{} runs already", self.name);
        let words = self.words().await?;
        self.start_words(&words)
    }

    /// Starts a container of these words.
    pub fn start_words(&mut self, words: &[String]) -> Result<()> {
        let (program, arguments) = words.split_first().context("no words")?;
        let log = File::options().create(true).append(true).open(self.log_file())?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        self.bed.record(child.id())?;
        self.process = Some(child);
        Ok(())
    }

    fn log_file(&self) -> PathBuf {
        self.bed.path().join(format!("{}.log", self.name))
    }

    pub fn logged(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// The pid of the container's process, before and after it became etcd.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.process.as_ref().context("nothing runs")?.id())
    }

    /// Whether the process has become etcd.
    pub fn is_etcd(&self) -> Result<bool> {
        let program = fs::read_link(format!("/proc/{}/exe", self.pid()?))?;
        Ok(program.file_name().is_some_and(|name| name == "etcd"))
    }

    /// The identity on its volume.
    pub fn identity(&self) -> Result<Identity> {
        let bytes = fs::read(self.volume().join("operator/identity.json"))?;
        Ok(contract::read(&bytes)?)
    }

    /// Writes another identity onto its volume.
    pub fn identify(&self, change: impl FnOnce(&mut Identity)) -> Result<()> {
        let mut identity = self.identity()?;
        change(&mut identity);
        fs::write(
            self.volume().join("operator/identity.json"),
            contract::write(&identity),
        )?;
        Ok(())
    }

    /// Names on its volume, in order.
    pub fn names(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.volume())?;
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Empties its volume.
    pub fn wipe(&self) -> Result<()> {
        for name in self.names()? {
            fs::remove_dir_all(self.volume().join(name))?;
        }
        Ok(())
    }

    /// Ends the container as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.process.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Asks the container to end, and waits so long until it has.
    pub async fn stop(&mut self, limit: Duration) -> Result<ExitStatus> {
        let process = ProcessId::of(self.pid()?).context("it has ended")?;
        process.send(Sent::Terminate)?;
        self.ended(limit).await
    }

    /// Waits until the container ends.
    pub async fn ended(&mut self, limit: Duration) -> Result<ExitStatus> {
        let mut child = self.process.take().context("nothing runs")?;
        until("the container ends", limit, || {
            let ended = child.try_wait();
            async move { Ok(ended?) }
        })
        .await
    }

    fn check(&mut self) -> Result<()> {
        let status = match &mut self.process {
            None => bail!("{} does not run", self.name),
            Some(child) => child.try_wait()?,
        };
        match status {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}):\n{}", self.name, self.logged()),
        }
    }

    /// Its report; none if it does not wait.
    pub async fn report(&self) -> Result<Option<Report>> {
        read_report(self.ask("GET /etcd-operator/report HTTP/1.1").await)
    }

    /// One request to its pages: status and body.
    pub fn ask(&self, line: &str) -> impl Future<Output = Result<(u16, String)>> + use<> {
        page(self.address, self.ports[2], line.to_owned())
    }

    /// Waits until its report is as wanted.
    pub async fn reported(&mut self, what: &str, wanted: impl Fn(&Report) -> bool) -> Result<Report> {
        self.reported_within(what, LIMIT, wanted).await
    }

    pub async fn reported_within(
        &mut self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Report) -> bool,
    ) -> Result<Report> {
        let last = RefCell::new(None);
        let found = until(what, limit, || {
            let alive = self.check();
            let asked = self.ask("GET /etcd-operator/report HTTP/1.1");
            let (last, wanted) = (&last, &wanted);
            async move {
                alive?;
                let report = read_report(asked.await)?;
                last.replace(report.clone());
                Ok(report.filter(wanted))
            }
        })
        .await;
        found.with_context(|| format!("the last report was {:#?}", last.borrow()))
    }

    /// Puts a permit where the kubelet would.
    pub fn permit(&self, permit: &Permit) -> Result<()> {
        self.permit_bytes(&contract::write(permit))
    }

    pub fn permit_bytes(&self, bytes: &[u8]) -> Result<()> {
        let new = self.outside.join("permit.new");
        fs::write(&new, bytes)?;
        fs::rename(new, self.permit_file())?;
        Ok(())
    }

    pub fn endpoint(&self) -> Result<Endpoint> {
        let tls = self.tls.as_ref().map(|tls| {
            Ok::<_, std::io::Error>(Tls {
                authority: fs::read(&tls.authority)?,
                identity: Some(etcd_operator_etcd::endpoint::Identity {
                    certificate: fs::read(&tls.certificate)?,
                    key: fs::read(&tls.key)?,
                }),
                server_name: None,
            })
        });
        Ok(Endpoint {
            tls: tls.transpose()?,
            ..Endpoint::plain(self.client_url())
        })
    }

    /// A client of the etcd it became, once that answers linearizable reads.
    pub async fn serving(&mut self) -> Result<Box<dyn Port>> {
        let endpoint = self.endpoint()?;
        until(&format!("{} serves", self.name), LIMIT, || {
            let alive = self.check();
            let endpoint = &endpoint;
            async move {
                alive?;
                let Ok(client) = Network.dial(endpoint).await else {
                    return Ok(None);
                };
                Ok(client.position().await.is_ok().then_some(client))
            }
        })
        .await
        .with_context(|| self.logged())
    }

    /// Starts a cluster of this member alone.
    pub async fn bootstrap(&mut self) -> Result<Box<dyn Port>> {
        self.start().await?;
        let report = self.reported("it waits", |_| true).await?;
        self.permit(&permit(&report, Mode::Bootstrap, &[self.entry()]))?;
        self.serving().await
    }

    /// Runs etcdctl of its version.
    pub async fn etcdctl(&self, arguments: &[&str]) -> Result<std::process::Output> {
        let program = components::find(Component::Etcdctl(self.version)).await?;
        Ok(Command::new(program)
            .env_clear()
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.client_url()))
            .args(arguments)
            .output()?)
    }

    /// Whether `etcd-operator ready` says so.
    pub async fn ready(&self) -> Result<bool> {
        let mut command = Command::new(operator::binary().await?);
        command
            .env_clear()
            .arg("ready")
            .arg(format!("--endpoint={}", self.client_url()));
        if let Some(tls) = &self.tls {
            command.arg("--client-ca").arg(&tls.authority);
            command.arg("--client-cert").arg(&tls.certificate);
            command.arg("--client-key").arg(&tls.key);
        }
        Ok(command.output()?.status.success())
    }

    pub async fn get(&self, key: &str) -> Result<String> {
        let output = self.etcdctl(&["get", "--print-value-only", key]).await?;
        ensure!(output.status.success(), "{output:?}");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    pub async fn put(&self, key: &str, value: &str) -> Result<()> {
        let output = self.etcdctl(&["put", key, value]).await?;
        ensure!(output.status.success(), "{output:?}");
        Ok(())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read_report(page: Result<(u16, String)>) -> Result<Option<Report>> {
    match page {
        Ok((200, body)) => Ok(Some(contract::read(body.as_bytes())?)),
        _ => Ok(None),
    }
}

/// A port that nothing has now, and that no other pod of this test was given.
fn free_port() -> Result<u16> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        if GIVEN.lock().expect("no test ended here").insert(port) {
            return Ok(port);
        }
    }
}

/// What the operator would answer to a report.
pub fn permit(report: &Report, mode: Mode, members: &[String]) -> Permit {
    Permit {
        version: 1,
        pod_uid: report.pod_uid.clone(),
        process: report.process.clone(),
        nonce: report.nonce.clone(),
        mode,
        incarnation: report.expected_incarnation,
        cluster_uid: report.cluster_uid.clone(),
        cluster_id: None,
        member_id: None,
        initial_cluster: members.join(","),
        token: "token".to_owned(),
        restore: None,
    }
}

async fn page(address: &'static str, port: u16, line: String) -> Result<(u16, String)> {
    let asked = async {
        let mut stream = TcpStream::connect((address, port)).await?;
        let request = format!("{line}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(Duration::from_secs(5), asked).await??;
    let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok((status, body.to_owned()))
}
