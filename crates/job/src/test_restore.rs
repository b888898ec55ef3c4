//! Verifies a backup by a test restore.
//!
//! etcd's own program restores a member in the scratch directory. etcd starts there on the loopback interface, and the keys
//! it serves are compared with the keys of the stream. Then everything is deleted.

mod free_space;

use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_operator_api::contract::Manifest;
use etcd_operator_etcd::client::Client;
use etcd_operator_etcd::endpoint::{Endpoint, Limits};
use etcd_operator_etcd::error::{Class, Error as EtcdError};
use etcd_operator_etcd::flags::{Config, Figures, Tuning};
use etcd_operator_etcd::id::Revision;
use etcd_operator_etcd::tool::{Restore, Server, ToolError, Tools, run, version as version_of};
use etcd_operator_etcd::version::{Minor, Version};
use etcd_operator_snapshot::content::live_keys::{LiveKeys, find_live_keys};
use etcd_operator_snapshot::content::{Digest, Facts};
use etcd_operator_snapshot::database::Database;
use etcd_operator_snapshot::source::File;

use crate::checks::{ScratchCopy, scratch_failure};
use crate::failure::Failure;
use crate::live_digest::{PageLimits, read_digest};

pub use free_space::require_free_space;

/// The failure reason if the backup cannot be restored, or the restored member does not serve it.
pub const RESTORE_FAILED: &str = "RestoreFailed";
/// The failure reason if the etcd image cannot restore the backup.
const ETCD_IMAGE: &str = "EtcdImage";

/// The name of the only member of the restored cluster.
const MEMBER: &str = "test-restore";
/// How often a starting etcd is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The timeout of a call to the restored etcd. A page of many keys takes longest.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// etcd's default quota for its database.
const DEFAULT_QUOTA: u64 = 2 << 30;

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        let message = error.to_string();
        match error {
            ToolError::NotRun { .. } | ToolError::NoVersion { .. } => Self::permanent(ETCD_IMAGE, message),
            ToolError::Failed { .. } => Self::retriable(RESTORE_FAILED, message),
        }
    }
}

/// A retriable failure with the reason `RestoreFailed`. Failures with the reason `EtcdImage` are permanent.
fn restore_failure(message: impl Into<String>) -> Failure {
    Failure::retriable(RESTORE_FAILED, message)
}

/// The version of etcd's programs. It must be one whose flags are known; another one is the permanent failure
/// `EtcdImage`.
pub async fn supported_version(tools: &Tools) -> Result<Version, Failure> {
    let version = version_of(tools)
        .await
        .map_err(|error| Failure::permanent(ETCD_IMAGE, error.to_string()))?;
    match Minor::of(&version) {
        Some(_) => Ok(version),
        None => Err(Failure::permanent(
            ETCD_IMAGE,
            format!("restoring with etcd {version} is not supported; 3.2 to 3.7 are"),
        )),
    }
}

/// A temporary directory, deleted when it is dropped.
#[derive(Debug)]
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn new(path: PathBuf) -> Result<Self, Failure> {
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(scratch_failure(&path, &error));
            }
            _ => {}
        }
        std::fs::create_dir(&path).map_err(|error| scratch_failure(&path, &error))?;
        Ok(Self(path))
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "cannot delete the test restore");
        }
    }
}

/// Restores a copy of a stored backup in the scratch directory, starts etcd, and compares the keys it serves.
pub async fn run_test_restore(
    copy: ScratchCopy,
    manifest: &Manifest,
    tools: &Tools,
    scratch: &Path,
) -> Result<(), Failure> {
    let version = supported_version(tools).await?;
    let facts = copy.audit.look.facts.clone();
    check_version(&version, &facts)?;
    let name = format!("restore-{}-{}", std::process::id(), manifest.snapshot_sha256);
    // Declared before the server, so that it is deleted after the server that writes into it.
    let folder = ScratchDirectory::new(scratch.join(name))?;
    let expected = read_keys(copy.path(), None, copy.audit.records).await?;
    let data = folder.0.join("data");
    let urls = LoopbackUrls::allocate()?;
    let restore = Restore {
        snapshot: copy.path().to_owned(),
        data_dir: data.clone(),
        name: MEMBER.to_owned(),
        members: vec![(MEMBER.to_owned(), urls.peer.parse().map_err(to_restore_failure)?)],
        token: manifest.snapshot_sha256.clone(),
        bump: None,
    };
    let invocation = restore
        .invocation(tools, tools.that_restores())
        .map_err(|error| restore_failure(error.to_string()))?;
    tracing::info!(%version, program = %invocation.program.display(), "starting a test restore");
    run(&invocation).await?;
    let (records, at) = (copy.audit.records, manifest.revision);
    // The copy is no longer needed, and etcd may need its space.
    drop(copy);
    let file = data.join("member").join("snap").join("db");
    if !file.exists() {
        let program = invocation.program.display();
        return Err(restore_failure(format!(
            "{program} succeeded but left no database at {}",
            file.display()
        )));
    }
    // The password of the snapshot's users is unknown, and an etcd with an alarm CORRUPT refuses reads. In these cases the
    // keys in the database file are compared.
    let refuses_reads = facts.auth.enabled || facts.alarms.iter().any(|alarm| alarm.alarm == "CORRUPT");
    if refuses_reads {
        let found = read_keys(&file, Some(at), records).await?;
        compare_digest(&expected, found.digest, "the restored database")?;
    }
    let config = config(&data, &urls, manifest.snapshot_size)?;
    let mut server = Server::start(tools, &version, &config)?;
    let compare = async {
        let client = wait_until_serving(&urls.client, at, refuses_reads).await?;
        if refuses_reads {
            return Ok(());
        }
        let limits = PageLimits::for_largest_key(expected.largest);
        let found = read_digest(&client, Revision(at), limits)
            .await
            .map_err(|error| restore_failure(format!("the restored etcd cannot be read: {error}")))?;
        compare_digest(&expected, found, "the restored etcd")
    };
    let compared = tokio::select! {
        compared = compare => compared,
        ended = server.ended() => Err(match ended {
            Ok(ended) => restore_failure(format!("the restored {ended}")),
            Err(error) => restore_failure(error.to_string()),
        }),
    };
    server
        .stop()
        .await
        .map_err(|error| restore_failure(format!("the restored etcd could not be stopped: {error}")))?;
    compared?;
    tracing::info!(
        keys = expected.keys,
        digest = %expected.digest,
        compared = if refuses_reads { "the database file" } else { "the served keys" },
        "the test restore holds the keys of the stream"
    );
    Ok(())
}

/// Fails if this version is older than the one that wrote the database: it would exit at once.
fn check_version(version: &Version, facts: &Facts) -> Result<(), Failure> {
    let versions = &facts.versions;
    let written = [&versions.storage, &versions.cluster];
    let newest = written
        .into_iter()
        .flatten()
        .filter_map(|text| {
            let mut parts = text.split('.').map(str::parse::<u32>);
            Some((parts.next()?.ok()?, parts.next()?.ok()?))
        })
        .max();
    match newest {
        Some(newest) if newest > (version.major, version.minor) => {
            let (major, minor) = newest;
            Err(Failure::permanent(
                ETCD_IMAGE,
                format!(
                    "the image holds etcd {version}, which cannot open a snapshot of etcd {major}.{minor}: use an image of {major}.{minor} or newer"
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// The URLs of the restored etcd: free ports of the loopback interface.
struct LoopbackUrls {
    client: String,
    peer: String,
}

impl LoopbackUrls {
    fn allocate() -> Result<Self, Failure> {
        let port = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            listener.local_addr().map(|address| (address.port(), listener))
        };
        let no_port =
            |error: std::io::Error| restore_failure(format!("no port of 127.0.0.1 is free: {error}"));
        // Both listeners stay open until both ports are known, so that the ports differ.
        let (client, peer) = (port().map_err(no_port)?, port().map_err(no_port)?);
        Ok(Self {
            client: format!("http://127.0.0.1:{}", client.0),
            peer: format!("http://127.0.0.1:{}", peer.0),
        })
    }
}

fn to_restore_failure(error: impl std::fmt::Display) -> Failure {
    restore_failure(error.to_string())
}

fn config(data: &Path, urls: &LoopbackUrls, size: u64) -> Result<Config, Failure> {
    let client = vec![urls.client.parse().map_err(to_restore_failure)?];
    let peer = vec![urls.peer.parse().map_err(to_restore_failure)?];
    Ok(Config {
        name: MEMBER.to_owned(),
        data_dir: data.display().to_string(),
        listen_peer: peer.clone(),
        listen_client: client.clone(),
        listen_metrics: Vec::new(),
        advertise_peer: peer,
        advertise_client: client,
        first: None,
        client_tls: None,
        peer_tls: None,
        tuning: Tuning {
            // A database near its quota must not raise an alarm NOSPACE here.
            quota: Some(size.saturating_mul(2).max(DEFAULT_QUOTA)),
            ..Tuning::default()
        },
        figures: Figures::Basic,
        check_at_start: false,
        check_every: None,
        check_compactions_every: None,
        stop_serving_on_defrag: false,
        max_learners: None,
        extra: Vec::new(),
    })
}

/// Waits until the server answers reads, or refuses them if `refuses_reads`. The deadline of the run bounds the wait.
async fn wait_until_serving(url: &str, at: i64, refuses_reads: bool) -> Result<Client, Failure> {
    let limits = Limits {
        call: CALL_TIMEOUT,
        ..Limits::default()
    };
    let endpoint = Endpoint {
        limits,
        ..Endpoint::plain(url.parse().map_err(to_restore_failure)?)
    };
    loop {
        if let Ok(client) = Client::connect(&endpoint).await {
            match client.position().await {
                Ok(position) if position.revision.0 >= at => return Ok(client),
                Ok(position) => {
                    return Err(restore_failure(format!(
                        "the restored etcd is at revision {}, but the snapshot is of revision {at}",
                        position.revision
                    )));
                }
                Err(error) if refuses_reads && is_refusal(&error) => return Ok(client),
                Err(error) => tracing::debug!(%error, "the restored etcd does not serve yet"),
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Whether a running server refused the read.
fn is_refusal(error: &EtcdError) -> bool {
    error.rejection().is_some() && matches!(error.class(), Class::Unauthorised | Class::Corrupt)
}

/// Reads the keys in a database file at a revision; by default at its newest one.
async fn read_keys(file: &Path, at: Option<i64>, records: u64) -> Result<LiveKeys, Failure> {
    let path = file.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let unreadable = |error: std::io::Error| scratch_failure(&path, &error);
        let file = std::fs::File::open(&path).map_err(unreadable)?;
        let mut database = Database::open(File::new(file).map_err(unreadable)?)?;
        Ok::<LiveKeys, Failure>(find_live_keys(&mut database, at, records)?)
    });
    reading
        .await
        .map_err(|stopped| Failure::retriable("Stopped", stopped.to_string()))?
}

fn compare_digest(expected: &LiveKeys, found: Digest, what: &str) -> Result<(), Failure> {
    if found == expected.digest {
        return Ok(());
    }
    Err(restore_failure(format!(
        "{what} does not hold the keys of the stream: {} keys with digest {found}, expected {} with digest {}",
        found.keys(),
        expected.keys,
        expected.digest
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_older_than_the_database_is_refused() {
        let mut facts = Facts::default();
        let image = "3.5.9".parse().expect("a version");
        assert_eq!(check_version(&image, &facts), Ok(()));
        facts.versions.cluster = Some("3.5.0".to_owned());
        assert_eq!(check_version(&image, &facts), Ok(()));
        facts.versions.storage = Some("3.6.0".to_owned());
        let failure = check_version(&image, &facts).expect_err("an older one");
        assert_eq!(
            (failure.reason.as_ref(), failure.is_retriable),
            (ETCD_IMAGE, false)
        );
        assert_eq!(
            failure.to_string(),
            "the image holds etcd 3.5.9, which cannot open a snapshot of etcd 3.6: use an image of 3.6 or newer"
        );
    }
}
