//! What a member is told at its start, as types, and each setting by the newest name of its flag.

use std::time::Duration;

use super::FlagError;
use crate::id::Revision;
use crate::url::{ClientUrl, PeerUrl};
use crate::version::{Minor, Version};

/// The whole configuration of a member, from which [`render`](super::render) makes the flags of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its name.
    pub name: String,
    /// Where its data lies.
    pub data_dir: String,
    /// Where it listens for members.
    pub listen_peer: Vec<PeerUrl>,
    /// Where it listens for clients.
    pub listen_client: Vec<ClientUrl>,
    /// Where it shows health and figures; empty means with the clients, and must be empty before 3.3.
    pub listen_metrics: Vec<ClientUrl>,
    /// Where members find it.
    pub advertise_peer: Vec<PeerUrl>,
    /// Where clients find it.
    pub advertise_client: Vec<ClientUrl>,
    /// What it needs to know for its first start, and never again.
    pub first: Option<First>,
    /// TLS towards clients.
    pub client_tls: Option<ClientTls>,
    /// TLS towards members.
    pub peer_tls: Option<PeerTls>,
    /// Sizes and times that users choose.
    pub tuning: Tuning,
    /// How many figures it shows.
    pub figures: Figures,
    /// Whether it compares its data with the others' before it serves; since 3.3.
    pub check_at_start: bool,
    /// How often the leader compares all members' data; since 3.3.
    pub check_every: Option<Duration>,
    /// How often the leader compares the hashes that compactions leave; since 3.5.5.
    pub check_compactions_every: Option<Duration>,
    /// Whether clients are sent elsewhere during a defragmentation; since 3.5.14.
    pub stop_serving_on_defrag: bool,
    /// Learners at a time, if not one; since 3.6.
    pub max_learners: Option<u32>,
    /// What users add, each as `--NAME=VALUE`, by the name of any minor.
    pub extra: Vec<String>,
}

/// What only a member's first start is told; etcd ignores it once there are data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct First {
    /// Whether the cluster is new or has a place for it.
    pub state: FirstState,
    /// What keeps members of different clusters apart.
    pub token: String,
    /// All members of that moment, by name.
    pub members: Vec<(String, PeerUrl)>,
}

/// Whether a member's first start is with a new cluster, or with one that it was added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstState {
    /// All its members start together.
    New,
    /// The member was added to it beforehand.
    Existing,
}

/// Files for TLS towards clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// Its certificate.
    pub certificate: String,
    /// The key of that.
    pub key: String,
    /// Who signs the certificates of clients; without, they need none.
    pub authority: Option<String>,
}

/// Files for TLS towards members, who always show certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTls {
    /// Its certificate.
    pub certificate: String,
    /// The key of that.
    pub key: String,
    /// Who signs the certificates of members.
    pub authority: String,
}

/// Sizes and times that users choose; none means etcd's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// The largest database, in bytes.
    pub quota: Option<u64>,
    /// What history is dropped.
    pub compaction: Option<Compaction>,
    /// Entries of the log between snapshots.
    pub snapshot_count: Option<u64>,
    /// Milliseconds between heartbeats.
    pub heartbeat_ms: Option<u32>,
    /// Milliseconds without a leader before an election.
    pub election_ms: Option<u32>,
    /// The largest request, in bytes.
    pub max_request_bytes: Option<u64>,
}

/// What history is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// Older than this; before 3.3 in whole hours.
    Periodic(Duration),
    /// More than so many revisions ago; since 3.3.
    Revision(Revision),
}

/// How many metrics etcd serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Figures {
    /// As etcd decides.
    #[default]
    Basic,
    /// Histograms of every call, too.
    Extensive,
}

type Settings = Vec<(&'static str, String)>;

/// The settings in order, each by a name that `table` translates for the version. What is not set is left out: etcd's
/// default applies. The only error is a compaction period that is not in whole hours, for 3.2.
pub(super) fn settings(config: &Config, version: &Version) -> Result<Settings, FlagError> {
    let mut all: Settings = vec![
        ("name", config.name.clone()),
        ("data-dir", config.data_dir.clone()),
        ("listen-peer-urls", list(&config.listen_peer)),
        ("listen-client-urls", list(&config.listen_client)),
        ("initial-advertise-peer-urls", list(&config.advertise_peer)),
        ("advertise-client-urls", list(&config.advertise_client)),
    ];
    if !config.listen_metrics.is_empty() {
        all.push(("listen-metrics-urls", list(&config.listen_metrics)));
    }
    if let Some(first) = &config.first {
        all.extend(first_start(first));
    }
    all.extend(config.client_tls.iter().flat_map(client_tls));
    all.extend(config.peer_tls.iter().flat_map(peer_tls));
    all.extend(tuning(&config.tuning, version)?);
    if config.figures == Figures::Extensive {
        all.push(("metrics", "extensive".to_owned()));
    }
    all.extend(checks(config));
    Ok(all)
}

/// Flags that every version gets that has them, and others do without: fewer needless elections, and logs that machines
/// can read.
pub(super) fn wishes() -> [(&'static str, &'static str); 2] {
    [("pre-vote", "true"), ("logger", "zap")]
}

fn first_start(first: &First) -> Settings {
    let members: Vec<String> = first
        .members
        .iter()
        .map(|(name, url)| format!("{name}={url}"))
        .collect();
    let state = match first.state {
        FirstState::New => "new",
        FirstState::Existing => "existing",
    };
    vec![
        ("initial-cluster", members.join(",")),
        ("initial-cluster-state", state.to_owned()),
        ("initial-cluster-token", first.token.clone()),
    ]
}

/// TLS for clients. With `authority`, clients must show a certificate.
fn client_tls(tls: &ClientTls) -> Settings {
    let mut all = vec![
        ("cert-file", tls.certificate.clone()),
        ("key-file", tls.key.clone()),
    ];
    if let Some(authority) = &tls.authority {
        all.push(("trusted-ca-file", authority.clone()));
        all.push(("client-cert-auth", "true".to_owned()));
    }
    all
}

fn peer_tls(tls: &PeerTls) -> Settings {
    vec![
        ("peer-cert-file", tls.certificate.clone()),
        ("peer-key-file", tls.key.clone()),
        ("peer-trusted-ca-file", tls.authority.clone()),
        ("peer-client-cert-auth", "true".to_owned()),
    ]
}

fn tuning(tuning: &Tuning, version: &Version) -> Result<Settings, FlagError> {
    let mut all = Vec::new();
    let mut number = |name, value: Option<u64>| all.extend(value.map(|value| (name, value.to_string())));
    number("quota-backend-bytes", tuning.quota);
    number("snapshot-count", tuning.snapshot_count);
    number("heartbeat-interval", tuning.heartbeat_ms.map(u64::from));
    number("election-timeout", tuning.election_ms.map(u64::from));
    number("max-request-bytes", tuning.max_request_bytes);
    match tuning.compaction {
        None => {}
        Some(Compaction::Periodic(age)) if Minor::of(version) == Some(Minor::V3_2) => {
            all.push(("auto-compaction-retention", whole_hours(age, version)?));
        }
        Some(Compaction::Periodic(age)) => {
            all.push(("auto-compaction-mode", "periodic".to_owned()));
            all.push(("auto-compaction-retention", seconds(age)));
        }
        Some(Compaction::Revision(revisions)) => {
            all.push(("auto-compaction-mode", "revision".to_owned()));
            all.push(("auto-compaction-retention", revisions.to_string()));
        }
    }
    Ok(all)
}

/// The period as etcd 3.2 takes it. An error unless it is in whole hours.
fn whole_hours(age: Duration, version: &Version) -> Result<String, FlagError> {
    let seconds = age.as_secs();
    if seconds.is_multiple_of(3600) {
        return Ok((seconds / 3600).to_string());
    }
    Err(FlagError::Value {
        flag: "auto-compaction-retention",
        value: format!("{seconds}s"),
        version: version.clone(),
        allowed: "whole hours",
    })
}

/// The comparisons of data between members, what a defragmentation does to clients, and the number of learners.
fn checks(config: &Config) -> Settings {
    let mut all = Vec::new();
    let yes = || "true".to_owned();
    if config.check_at_start {
        all.push(("experimental-initial-corrupt-check", yes()));
    }
    if let Some(interval) = config.check_every {
        all.push(("corrupt-check-time", seconds(interval)));
    }
    if let Some(interval) = config.check_compactions_every {
        all.push(("experimental-compact-hash-check-enabled", yes()));
        all.push(("compact-hash-check-time", seconds(interval)));
    }
    if config.stop_serving_on_defrag {
        all.push(("experimental-stop-grpc-service-on-defrag", yes()));
    }
    if let Some(count) = config.max_learners {
        all.push(("max-learners", count.to_string()));
    }
    all
}

fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_secs())
}

fn list<T: ToString>(urls: &[T]) -> String {
    let texts: Vec<String> = urls.iter().map(ToString::to_string).collect();
    texts.join(",")
}
