//! A control plane: a real kube-apiserver and its etcd, as processes on loopback, in a directory of their own.
//! [`crate::Cluster`] has one in network namespaces of its own and adds what is missing here.
//!
//! By itself it has no controllers, no scheduler and no nodes: pods stay Pending, deleted namespaces stay Terminating,
//! owned objects are not collected, and aggregated cluster roles such as `view` have no rules. Tests that share one
//! control plane work in namespaces of their own.

mod asked;
mod audit;
mod doors;
mod kubeconfig;
mod kubectl;
mod launch;
mod outage;
mod tenant;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

pub use audit::{AuditEntry, AuditFilter, AuditMark, AuditObject, AuditStatus, AuditUser};
pub use kubeconfig::Access;
pub use tenant::TenantApiServer;

use crate::bed_dir::{self, BedDir};
use crate::components::{self, Component};
use crate::deadline::until;
use crate::launch::{Launch, Running};
use crate::namespaces::{Entry, Hub};
use crate::network::{self, Number};
use crate::pki::TokenKeys;
pub(crate) use crate::pki::{Authority, Identity};
use crate::process::ProcessId;
pub(crate) use kubeconfig::Entrance;
pub(crate) use launch::free_port;
use launch::{ApiServerFiles, Around};

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
    files: ApiServerFiles,
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
        let files = ApiServerFiles {
            authority: bed.write("ca.crt", authority.certificate())?,
            certificate: bed.write("apiserver.crt", server.certificate)?,
            key: bed.write("apiserver.key", server.key)?,
            token_public: bed.write("service-account.pub", tokens.public)?,
            token_private: bed.write("service-account.key", tokens.private)?,
            audit_policy: bed.write("audit-policy.json", audit::POLICY)?,
            audit_log: bed.path().join("audit.log"),
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
            files,
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
