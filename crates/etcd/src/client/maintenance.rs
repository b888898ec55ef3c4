//! The status of a member, its alarms, its maintenance (defragmentation, hashes, leadership), and downgrades of the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmResponse, AlarmType, DowngradeOptions, GetOptions};
use futures::{StreamExt, TryStreamExt, future, stream};
use tokio::net::TcpStream;

use super::http::{self, VERSION_PATH, Versions};
use super::tls::TlsFailure;
use super::{Client, answers, no_connection};
use crate::error::{Cause, Class, Error};
use crate::id::{MemberId, Revision};
use crate::status::{Alarm, AlarmKind, KeysHash, Position, Status};
use crate::version::Version;

pub(super) const RANGE: &str = "Range";
const STATUS: &str = "Status";
const VERSION: &str = "Version";
const ALARM: &str = "Alarm";
const DEFRAGMENT: &str = "Defragment";
const HASH: &str = "HashKV";
const MOVE_LEADER: &str = "MoveLeader";
const VALIDATE_DOWNGRADE: &str = "DowngradeValidate";
const ENABLE_DOWNGRADE: &str = "DowngradeEnable";
const CANCEL_DOWNGRADE: &str = "DowngradeCancel";

/// How many entries of the raft log are on their way at once: one write to a disk holds as many, and clients' have room beside them.
const CONCURRENT_LOG_ENTRIES: usize = 64;

impl Client {
    /// A linearizable read: a leader with its quorum has answered through this member, which has caught up with all
    /// that was agreed before.
    pub async fn position(&self) -> Result<Position, Error> {
        self.read(GetOptions::new()).await
    }

    /// A read of what this member has by itself, without asking the others: it says that the process serves.
    pub async fn local_position(&self) -> Result<Position, Error> {
        self.read(GetOptions::new().with_serializable()).await
    }

    async fn read(&self, options: GetOptions) -> Result<Position, Error> {
        let mut kv = self.etcd.kv_client();
        let answer = self
            .call(RANGE, kv.get([0], Some(options.with_count_only())))
            .await?;
        answers::position(answer.header()).map_err(|what| self.malformed(RANGE, what))
    }

    /// What the member says of itself; learners and members without a quorum answer, too.
    pub async fn status(&self) -> Result<Status, Error> {
        let mut maintenance = self.etcd.maintenance_client();
        let answer = self.call(STATUS, maintenance.status()).await?;
        answers::status(&answer).map_err(|what| self.malformed(STATUS, what))
    }

    /// The cluster version as this member has it, with patch 0: the minor whose features the members have agreed to use. None
    /// before they have agreed on one. A member without a quorum answers, too; authentication is not needed.
    ///
    /// No call of gRPC tells it, so that this asks by HTTP over a connection of its own, and the answer does not say whose it
    /// is. So the member answers over its own connection after that: its process still lives, and no other one listened there.
    pub async fn cluster_version(&self) -> Result<Option<Version>, Error> {
        let tls_failure = TlsFailure::default();
        let limit = self.limits.call;
        let asked = tokio::time::timeout(limit, self.read_versions(&tls_failure));
        let versions = asked.await.unwrap_or(Err(Cause::NoAnswer(limit)));
        let versions = versions.map_err(|cause| Error {
            endpoint: self.url.clone(),
            call: VERSION,
            cause: tls_failure.explain(cause),
        })?;
        match self.status().await {
            Ok(status) if status.version != versions.server => {
                let what = format!("the member runs {}, not {}", status.version, versions.server);
                Err(self.malformed(VERSION, what))
            }
            Ok(_) => Ok(versions.cluster),
            // The process is there. Some minor versions tell their version only to users while authentication is enabled.
            Err(error) if error.class() == Class::Unauthorised => Ok(versions.cluster),
            Err(error) => Err(error),
        }
    }

    /// Gets the page `/version` over a connection of its own. An error of TLS is recorded in `tls_failure`.
    async fn read_versions(&self, tls_failure: &TlsFailure) -> Result<Versions, Cause> {
        let address = format!("{}:{}", self.url.host(), self.url.port());
        let unconnected = |error: std::io::Error| no_connection(&error);
        let answer = if let Some(connector) = &self.connector {
            let stream = connector.connect_http1(tls_failure.clone()).await;
            http::get(stream.map_err(unconnected)?, &address, VERSION_PATH).await
        } else {
            let stream = TcpStream::connect(&address).await;
            http::get(stream.map_err(unconnected)?, &address, VERSION_PATH).await
        };
        Versions::read(&answer?.body).map_err(Cause::Malformed)
    }

    /// The active alarms of the cluster. etcd passes the request through the raft log: without a quorum it fails.
    pub async fn alarms(&self) -> Result<BTreeSet<Alarm>, Error> {
        let mut maintenance = self.etcd.maintenance_client();
        let asked = maintenance.alarm(AlarmAction::Get, AlarmType::None, None);
        Ok(read_alarms(&self.call(ALARM, asked).await?))
    }

    /// Writes `count` entries to the raft log that change nothing, and stops at the first error. A list of alarms is
    /// such an entry: etcd answers it after it has passed through the log.
    pub async fn write_log_entries(&self, count: u64) -> Result<(), Error> {
        stream::iter(0..count)
            .map(|_| self.alarms())
            .buffer_unordered(CONCURRENT_LOG_ENTRIES)
            .try_for_each(|_| future::ready(Ok(())))
            .await
    }

    /// Disarms an alarm. That it is no longer active is no error. An alarm of a kind that is not known here is one, and
    /// etcd is not asked.
    pub async fn disarm(&self, alarm: Alarm) -> Result<(), Error> {
        let kind = match alarm.kind {
            AlarmKind::NoSpace => AlarmType::Nospace,
            AlarmKind::Corrupt => AlarmType::Corrupt,
            AlarmKind::Other(number) => return Err(self.failed(ALARM, Cause::UnknownAlarm(number))),
        };
        let mut options = AlarmOptions::new();
        options.with_member(alarm.member.map_or(0, MemberId::get));
        let mut maintenance = self.etcd.maintenance_client();
        let ended = maintenance.alarm(AlarmAction::Deactivate, kind, Some(options));
        self.call(ALARM, ended).await.map(drop)
    }

    /// Hands leadership from this member, which must have it, to another voter.
    pub async fn move_leader(&self, to: MemberId) -> Result<(), Error> {
        let mut maintenance = self.etcd.maintenance_client();
        let moved = maintenance.move_leader(to.get());
        self.call(MOVE_LEADER, moved).await.map(drop)
    }

    /// Asks whether [`Self::enable_downgrade`] would be refused. Nothing changes.
    pub async fn validate_downgrade(&self, target: &Version) -> Result<(), Error> {
        let options = DowngradeOptions::Validate(target_of(target));
        self.downgrade(VALIDATE_DOWNGRADE, options).await
    }

    /// Enables a downgrade to the minor version of `target`, which must be the one below that of the cluster. The leader then
    /// lowers the cluster version, and each member the version of its files; etcd ends it once all members run that minor.
    pub async fn enable_downgrade(&self, target: &Version) -> Result<(), Error> {
        let options = DowngradeOptions::Enable(target_of(target));
        self.downgrade(ENABLE_DOWNGRADE, options).await
    }

    /// Ends a downgrade. The cluster version rises again unless a member runs the lower minor.
    pub async fn cancel_downgrade(&self) -> Result<(), Error> {
        self.downgrade(CANCEL_DOWNGRADE, DowngradeOptions::Cancel).await
    }

    async fn downgrade(&self, call: &'static str, options: DowngradeOptions) -> Result<(), Error> {
        let mut maintenance = self.etcd.maintenance_client();
        self.call(call, maintenance.downgrade(options)).await.map(drop)
    }

    /// Rewrites this member's database without its holes. The member serves nothing meanwhile.
    pub async fn defragment(&self, limit: Duration) -> Result<(), Error> {
        let mut maintenance = self.etcd.maintenance_client();
        let rewritten = maintenance.defragment();
        self.call_within(DEFRAGMENT, rewritten, limit).await.map(drop)
    }

    /// The hash of this member's keys up to a revision, or up to its newest. Hashes are comparable only at the same
    /// revision and the same `compacted`.
    pub async fn hash_keys(&self, at: Option<Revision>, limit: Duration) -> Result<KeysHash, Error> {
        let mut maintenance = self.etcd.maintenance_client();
        let hashed = maintenance.hash_kv(at.map_or(0, |revision| revision.0));
        let answer = self.call_within(HASH, hashed, limit).await?;
        let position = answers::position(answer.header()).map_err(|what| self.malformed(HASH, what))?;
        Ok(KeysHash {
            position,
            hash: answer.hash(),
            compacted: Revision(answer.compact_version()),
            revision: Some(Revision(answer.hash_revision())).filter(|revision| revision.0 > 0),
        })
    }
}

/// The target of a downgrade as etcd takes it: a cluster version, which has patch 0.
fn target_of(version: &Version) -> String {
    format!("{}.{}.0", version.major, version.minor)
}

/// Reads the numbers of the message itself: `AlarmResponse::alarms` casts them to an enum that knows three.
fn read_alarms(answer: &AlarmResponse) -> BTreeSet<Alarm> {
    let alarms = answer.0.alarms.iter().map(|alarm| Alarm {
        member: MemberId::new(alarm.member_id),
        kind: answers::alarm_kind(alarm.alarm),
    });
    alarms.collect()
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::{PbAlarmMember, PbAlarmResponse};

    use super::*;

    #[test]
    fn an_alarm_of_a_newer_etcd_is_read_by_its_number() {
        let raised = |alarm| PbAlarmMember { member_id: 7, alarm };
        let answer = AlarmResponse(PbAlarmResponse {
            header: None,
            alarms: vec![raised(1), raised(2), raised(3)],
        });
        let kinds: Vec<AlarmKind> = read_alarms(&answer).iter().map(|alarm| alarm.kind).collect();
        assert_eq!(
            kinds,
            [AlarmKind::NoSpace, AlarmKind::Corrupt, AlarmKind::Other(3)]
        );
    }
}
