//! A control plane: a real kube-apiserver and its etcd, as processes on loopback, in a directory of their own.
//! [`crate::Cluster`] has one in network namespaces of its own and adds what is missing here.
//!
//! By itself it has no controllers, no scheduler and no nodes: pods stay Pending, deleted namespaces stay Terminating,
//! owned objects are not collected, and aggregated cluster roles such as `view` have no rules. Tests that share one
//! control plane work in namespaces of their own.

mod audit;
mod kubeconfig;
mod launch;
mod pki;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Config};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::OnceCell;

pub use audit::{AuditEntry, AuditFilter, AuditMark, AuditObject, AuditStatus, AuditUser};
pub use kubeconfig::Access;

use crate::bed_dir::{self, BedDir};
use crate::command::{output, printed, succeed};
use crate::components::{self, Component, EtcdVersion};
use crate::deadline::until;
use crate::launch::{Launch, Running, tail};
use crate::namespaces::{Entry, Hub};
use crate::network::{self, Number};
use crate::process::{ProcessId, Sent};
use crate::proxy::Cut;
pub(crate) use kubeconfig::Entrance;
pub(crate) use launch::free_port;
use launch::{ApiServerFiles, Around};
use pki::TokenKeys;
pub(crate) use pki::{Authority, Identity};

/// A start takes some 4 s on two idle cores; this is for machines that also compile.
const START_LIMIT: Duration = Duration::from_mins(2);
/// One request of the bed itself.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// In namespaces of its own nobody else takes a port.
pub(crate) const API_PORT: u16 = 6443;
const ETCD_PORT: u16 = 2379;
/// A port can be taken between looking for it and using it.
const START_ATTEMPTS: usize = 3;

/// What can be chosen about a control plane.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Further flags for kube-apiserver, such as `--watch-cache=false`.
    pub api_server_flags: Vec<String>,
    /// The nodes it will have; none means a control plane by itself, on this host's loopback.
    #[doc(hidden)]
    pub nodes: Vec<Number>,
}

/// A running control plane. Dropping it ends its processes and removes its directory; if the owner is killed
/// instead, a watchdog does the same.
pub struct ControlPlane {
    // Declared in the order in which they end.
    api_server: Mutex<Option<Running>>,
    etcd: Mutex<Running>,
    launch: Launch,
    entrance: Entrance,
    etcd_url: String,
    audit_log: PathBuf,
    kubeconfig: PathBuf,
    authority: Authority,
    hub: Option<Hub>,
    bed: BedDir,
}

/// The one control plane that all tests of a binary share. It ends with the test process.
pub async fn shared() -> Result<&'static ControlPlane> {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    SHARED
        .get_or_try_init(|| ControlPlane::start(Options::default()))
        .await
}

impl ControlPlane {
    /// Removes what killed beds have left, builds what is not built yet, starts, and waits until the API server is
    /// ready.
    pub async fn start(options: Options) -> Result<Self> {
        // Another provider can be in place already only if it was chosen on purpose.
        let _ = rustls::crypto::ring::default_provider().install_default();
        bed_dir::clean().await?;
        let etcd = components::find(Component::EtcdOfControlPlane).await?;
        let api_server = components::find(Component::KubeApiserver).await?;
        let mut attempt = 1;
        loop {
            match Self::launch(&options, &etcd, &api_server).await {
                Err(error)
                    if attempt < START_ATTEMPTS
                        && format!("{error:#}").contains("address already in use") =>
                {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn launch(options: &Options, etcd: &Path, api_server: &Path) -> Result<Self> {
        let bed = BedDir::create()?;
        let hub = match options.nodes.as_slice() {
            [] => None,
            _ => Some(Hub::start(&bed).await?),
        };
        let (address, etcd_address) = match &hub {
            None => (
                SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)),
                SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)),
            ),
            Some(hub) => {
                let uplink = network::wire_hub(&bed, hub.entry(), &options.nodes)
                    .await?
                    .address;
                (
                    SocketAddr::from((uplink, API_PORT)),
                    SocketAddr::from((uplink, ETCD_PORT)),
                )
            }
        };
        let entry = hub.as_ref().map(Hub::entry);
        let etcd_url = format!("http://{etcd_address}");

        let mut etcd = placed(
            launch::etcd(etcd.to_owned(), &bed.path().join("etcd"), &etcd_url),
            entry,
        )
        .start(&bed)?;

        let authority = Authority::new()?;
        let server = authority.server(
            "kube-apiserver",
            &[
                "127.0.0.1",
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
                &address.ip().to_string(),
                &network::CONTROL_PLANE.to_string(),
                &network::API_SERVICE.to_string(),
            ],
        )?;
        let tokens = TokenKeys::new()?;
        let audit_log = bed.path().join("audit.log");
        let files = ApiServerFiles {
            authority: bed.write("ca.crt", authority.certificate())?,
            certificate: bed.write("apiserver.crt", server.certificate)?,
            key: bed.write("apiserver.key", server.key)?,
            token_public: bed.write("service-account.pub", tokens.public)?,
            token_private: bed.write("service-account.key", tokens.private)?,
            audit_policy: bed.write("audit-policy.json", audit::POLICY)?,
            audit_log: audit_log.clone(),
        };
        let entrance = Entrance {
            address,
            authority: authority.certificate().to_owned(),
            admin: authority.client("bed-admin", "system:masters")?,
        };
        let kubeconfig = bed.write("kubeconfig", entrance.kubeconfig(&Access::admin()).to_string())?;
        let around = match entry {
            None => Around::Alone,
            Some(_) => Around::Nodes {
                kubelet_client_certificate: bed.write("kubelet-client.crt", &entrance.admin.certificate)?,
                kubelet_client_key: bed.write("kubelet-client.key", &entrance.admin.key)?,
            },
        };
        let launch = placed(
            launch::api_server(
                api_server.to_owned(),
                address.port(),
                &etcd_url,
                &files,
                &around,
                &options.api_server_flags,
            ),
            entry,
        );

        // The API server waits a whole second after a refused connection.
        until("etcd takes connections", START_LIMIT, || {
            let alive = etcd.check();
            async move {
                alive?;
                Ok(TcpStream::connect(etcd_address).await.ok())
            }
        })
        .await?;
        let control_plane = Self {
            api_server: Mutex::new(None),
            etcd: Mutex::new(etcd),
            launch,
            entrance,
            etcd_url,
            audit_log,
            kubeconfig,
            authority,
            hub,
            bed,
        };
        control_plane.start_apiserver().await?;
        Ok(control_plane)
    }

    /// Where everything of this control plane lies, its logs included.
    pub fn directory(&self) -> &Path {
        self.bed.path()
    }

    /// The address of the API server itself.
    pub fn address(&self) -> SocketAddr {
        self.entrance.address
    }

    /// The processes of this control plane, its watchdog included.
    pub fn processes(&self) -> Vec<ProcessId> {
        let api_server = locked(&self.api_server).as_ref().map(Running::id);
        [Some(locked(&self.etcd).id()), api_server, self.bed.watchdog()]
            .into_iter()
            .flatten()
            .collect()
    }

    // What a cluster builds on.

    pub(crate) fn bed(&self) -> &BedDir {
        &self.bed
    }

    pub(crate) fn hub(&self) -> Result<Entry> {
        self.hub
            .as_ref()
            .map(Hub::entry)
            .context("this control plane has no namespaces of its own")
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The API server as nodes and pods reach it, for whoever has this identity.
    pub(crate) fn inner_entrance(&self, identity: Identity) -> Entrance {
        Entrance {
            address: SocketAddr::from((network::CONTROL_PLANE, self.entrance.address.port())),
            authority: self.authority.certificate().to_owned(),
            admin: identity,
        }
    }

    // Ways in.

    /// A client with all rights.
    pub async fn client(&self) -> Result<Client> {
        self.client_with(&Access::admin()).await
    }

    /// A client with all rights that is found in the audit log by its user agent.
    pub async fn client_as(&self, user_agent: &str) -> Result<Client> {
        self.client_with(&Access::admin().user_agent(user_agent)).await
    }

    /// A client with the rights of this user in these groups.
    pub async fn client_for(&self, user: &str, groups: &[&str]) -> Result<Client> {
        self.client_with(&Access::admin().user(user, groups)).await
    }

    /// A client as described. It belongs to the runtime it is made on.
    pub async fn client_with(&self, access: &Access) -> Result<Client> {
        Client::try_from(self.config_with(access).await?).context("cannot make a client")
    }

    /// The configuration of such a client, for tests that change more of it.
    pub async fn config_with(&self, access: &Access) -> Result<Config> {
        self.entrance.config(access).await
    }

    /// A kubeconfig with all rights, everything embedded.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A kubeconfig as described, written as `NAME.kubeconfig` into the bed's directory.
    pub fn kubeconfig_with(&self, name: &str, access: &Access) -> Result<PathBuf> {
        self.bed.write(
            &format!("{name}.kubeconfig"),
            self.entrance.kubeconfig(access).to_string(),
        )
    }

    /// A proxy in front of the API server, to be broken. It belongs to the caller and to the caller's runtime: tests
    /// that share a control plane do not disturb each other.
    pub async fn cut(&self) -> Result<Cut> {
        Cut::start(self.entrance.address).await
    }

    /// A kubeconfig with all rights that goes through the proxy.
    pub fn kubeconfig_via_proxy(&self, cut: &Cut) -> Result<PathBuf> {
        self.kubeconfig_with(
            &format!("via-{}", cut.address().port()),
            &Access::admin().through(cut),
        )
    }

    // Things tests do with it.

    /// A new namespace whose name begins with `prefix`.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let namespace = Namespace {
            metadata: ObjectMeta {
                generate_name: Some(format!("{prefix}-")),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let made = Api::<Namespace>::all(self.client().await?)
            .create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("cannot make a namespace {prefix}-…"))?;
        made.metadata
            .name
            .context("the API server gave the namespace no name")
    }

    /// Runs kubectl with all rights.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<Output> {
        self.kubectl_with_input(arguments, "").await
    }

    /// Runs kubectl with all rights and this on its standard input, for `-f -`.
    pub async fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let kubectl = components::find(Component::Kubectl).await?;
        let mut command = Command::new(&kubectl);
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            // The API server is on this host, whatever way leads out of it.
            .env("NO_PROXY", "*")
            // kubectl caches what a server can do by address; the next bed may have the same one.
            .env("KUBECACHEDIR", self.bed.path().join("kubectl-cache"));
        output(command, input).await
    }

    /// Applies CRDs and waits until the API server has established every one of them.
    pub async fn apply_crds(&self, yaml: &str) -> Result<()> {
        let apply = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "-o",
            "name",
            "-f",
            "-",
        ];
        let applied = printed(self.kubectl_with_input(&apply, yaml).await?, "kubectl apply")?;
        let names: Vec<&str> = applied.lines().filter(|line| !line.is_empty()).collect();
        let wait = [
            &["wait", "--for=condition=Established", "--timeout=30s"],
            names.as_slice(),
        ]
        .concat();
        printed(self.kubectl(&wait).await?, "kubectl wait")?;
        Ok(())
    }

    // What it has been asked.

    /// The present end of the audit log.
    pub fn audit_mark(&self) -> AuditMark {
        AuditMark(std::fs::metadata(&self.audit_log).map_or(0, |metadata| metadata.len()))
    }

    /// The requests logged so far that the filter admits, in the order in which they first appear. A request is
    /// logged about when it is answered, not before: to wait for one, use [`ControlPlane::audit_until`].
    pub fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>> {
        audit::requests(&self.audit_log, filter)
    }

    /// Waits until at least `count` requests that the filter admits are logged.
    pub async fn audit_until(
        &self,
        filter: &AuditFilter,
        count: usize,
        within: Duration,
    ) -> Result<Vec<AuditEntry>> {
        until(&format!("{count} requests in the audit log"), within, || {
            let found = self.audit(filter);
            async move { found.map(|found| (found.len() >= count).then_some(found)) }
        })
        .await
    }

    /// The API server's own metrics, in the text format.
    pub async fn metrics(&self) -> Result<String> {
        self.get_text(&self.client().await?, "/metrics")
            .await
            .context("cannot read the API server's metrics")
    }

    // Things that go wrong.

    /// Kills the API server, as a crash would: connections break without a word. Data and port are kept.
    pub fn stop_apiserver(&self) {
        drop(locked(&self.api_server).take());
    }

    /// Starts the API server again on the same port and waits until it is ready.
    pub async fn start_apiserver(&self) -> Result<()> {
        {
            let mut api_server = locked(&self.api_server);
            if api_server.is_some() {
                bail!("the API server has not been stopped");
            }
            *api_server = Some(self.launch.start(&self.bed)?);
        }
        let mut config = self.config_with(&Access::admin()).await?;
        config.default_retry = false;
        let client = Client::try_from(config)?;
        until("the API server is ready", START_LIMIT, || async {
            locked(&self.api_server)
                .as_mut()
                .context("the API server was stopped")?
                .check()?;
            locked(&self.etcd).check()?;
            Ok(self.get_text(&client, "/readyz").await.ok())
        })
        .await
        .with_context(|| {
            format!(
                "kube-apiserver's log ends with\n{}",
                tail(&self.bed.path().join("kube-apiserver.log"))
            )
        })?;
        Ok(())
    }

    /// Makes the API server stand still: it takes connections and answers nothing, until
    /// [`ControlPlane::resume_apiserver`].
    pub fn pause_apiserver(&self) -> Result<()> {
        locked(&self.api_server)
            .as_ref()
            .context("the API server was stopped")?
            .send(Sent::Pause)
    }

    /// Lets the API server go on.
    pub fn resume_apiserver(&self) -> Result<()> {
        locked(&self.api_server)
            .as_ref()
            .context("the API server was stopped")?
            .send(Sent::Resume)
    }

    /// Compacts etcd at its present revision, which is returned. The API server still answers from memory for what
    /// its watch cache holds; see [`ControlPlane::forget_history`].
    pub async fn compact_etcd(&self) -> Result<u64> {
        let status = self.etcdctl(&["endpoint", "status", "--write-out=json"]).await?;
        let status: Value = serde_json::from_str(&status).context("etcdctl's status is no JSON")?;
        let revision = status
            .pointer("/0/Status/header/revision")
            .and_then(Value::as_u64)
            .with_context(|| format!("etcdctl's status names no revision: {status}"))?;
        self.etcdctl(&["compaction", &revision.to_string()]).await?;
        Ok(revision)
    }

    /// Compacts etcd and restarts the API server, whose watch cache goes with it: from now on a watch from before
    /// is answered with 410. Returns the revision up to which history is gone.
    pub async fn forget_history(&self) -> Result<u64> {
        let revision = self.compact_etcd().await?;
        self.stop_apiserver();
        self.start_apiserver().await?;
        Ok(revision)
    }

    async fn etcdctl(&self, arguments: &[&str]) -> Result<String> {
        let mut command =
            Command::new(components::find(Component::Etcdctl(EtcdVersion::OF_CONTROL_PLANE)).await?);
        command
            .arg(format!("--endpoints={}", self.etcd_url))
            .args(arguments);
        succeed(command, "").await
    }

    async fn get_text(&self, client: &Client, path: &str) -> Result<String> {
        let request = http::Request::get(path)
            .body(Vec::new())
            .context("no valid path")?;
        Ok(tokio::time::timeout(REQUEST_LIMIT, client.request_text(request)).await??)
    }
}

/// A panic elsewhere must not keep processes from being ended.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn placed(launch: Launch, entry: Option<Entry>) -> Launch {
    match entry {
        None => launch,
        Some(entry) => launch.within(entry),
    }
}
