//! The model behind the port that callers use: each call as the real client makes it, its order of questions included.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_operator_etcd::client::Added;
use etcd_operator_etcd::error::{Cause, Error};
use etcd_operator_etcd::id::{MemberId, Revision};
use etcd_operator_etcd::membership::{Listed, Member, Role};
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::port::{Answer, Members, Port};
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::status::{Alarm, KeysHash, Position, Status};
use etcd_operator_etcd::url::{ClientUrl, PeerUrl};
use etcd_operator_etcd::version::Version;

use super::ids;
use super::line::{Line, gone, no};
use super::log::Change;
use super::process::ProcessId;
use super::truth::{Step, StepKind};
use crate::chance::mixed;

/// How fast a database is rewritten.
const BYTES_A_SECOND: u64 = 45 << 20;

impl Line {
    /// Shows a judged caller's step to the judges before anything is refused.
    pub(super) fn judged(&self, process: ProcessId, what: StepKind) {
        let caller = self.caller.labels.first().cloned().unwrap_or_default();
        self.etcds.with(|world| {
            if let Some(asked) = world.running(process).map(|running| running.id) {
                world
                    .timeline
                    .note(&caller, format_args!("asks {asked} for {what:?}"));
            }
        });
        self.shown(process, what);
    }

    /// Shows the judges what became of a judged caller's step, or that it is about to be taken.
    fn shown(&self, process: ProcessId, what: StepKind) {
        self.etcds.with(|world| {
            let running = world.running(process);
            let Some((cluster, asked)) = running.map(|running| (running.cluster, running.id)) else {
                return;
            };
            if self.caller.is_judged {
                let caller = self.caller.labels.first().cloned().unwrap_or_default();
                let step = Step {
                    caller,
                    cluster,
                    asked,
                    what,
                };
                world.judge(&step);
            }
        });
    }

    async fn read_position(&self) -> Result<Position, Error> {
        let etcds = &self.etcds;
        self.ask("Range", self.limits.call, |process| etcds.read(process))
            .await
    }

    async fn read_status(&self) -> Result<Status, Error> {
        let status = |process| async move { self.etcds.with(|world| world.status(process)) };
        self.ask("Status", self.limits.call, status).await
    }

    /// The members as this one has them by itself, on any version: no call asks for more.
    async fn list(&self) -> Result<Listed, Error> {
        let list = |process| async move {
            self.etcds.with(|world| world.is_no_learner(process))?;
            self.etcds.with(|world| {
                Ok(Listed {
                    position: world.position(process)?,
                    members: by_id(world.members(process)?),
                })
            })
        };
        self.ask("MemberList", self.limits.call, list).await
    }

    async fn require(&self, call: &'static str, feature: Feature, why: &'static str) -> Result<(), Error> {
        let version = self.read_status().await?.version;
        if feature.is_in(&version) {
            return Ok(());
        }
        let version = version.to_string();
        Err(self.failed(call, Cause::Unsupported { version, why }))
    }

    async fn add(&self, urls: &[PeerUrl], role: Role) -> Result<Added, Error> {
        let step = match role {
            Role::Voter => StepKind::AddVoter(urls.to_vec()),
            Role::Learner => StepKind::AddLearner(urls.to_vec()),
        };
        let add = |process| async move {
            self.judged(process, step);
            let member = self.etcds.with(|world| {
                world.is_no_learner(process)?;
                world.may_add(process, role).map_err(no)?;
                let second = Some(world.now);
                Ok::<Member, Cause>(Member {
                    id: ids::member(urls, "", second),
                    name: None,
                    peer_urls: urls.to_vec(),
                    client_urls: Vec::new(),
                    role,
                })
            })?;
            self.etcds
                .agreed(process, Change::Add(Box::new(member.clone())))
                .await?;
            let position = self.etcds.with(|world| world.position(process))?;
            Ok(Added { position, member })
        };
        self.ask("MemberAdd", self.limits.call, add).await
    }

    async fn promoted(&self, learner: MemberId) -> Result<Members, Error> {
        let promote = |process| async move {
            self.judged(process, StepKind::Promote(learner));
            self.etcds.with(|world| {
                world.is_no_learner(process)?;
                if world.has(process, Feature::Learners) {
                    Ok(())
                } else {
                    Err(no(Rejection::Unsupported))
                }
            })?;
            let leader = self
                .etcds
                .until(|world| match world.running(process) {
                    None => Some(Err(gone())),
                    Some(_) => world.leader_of(process).map(Ok),
                })
                .await?;
            self.etcds
                .with(|world| world.may_promote(leader, learner))
                .map_err(no)?;
            self.etcds.agreed(leader, Change::Promote(learner)).await?;
            self.etcds.with(|world| world.members(leader))
        };
        let members = self.ask("MemberPromote", self.limits.call, promote).await?;
        Ok(by_id(members))
    }

    async fn removed(&self, member: MemberId) -> Result<Members, Error> {
        let remove = |process| async move {
            self.judged(process, StepKind::Remove(member));
            let refused = self.etcds.with(|world| {
                world.is_no_learner(process)?;
                world.may_remove(process, member).map_err(no)
            });
            if refused.is_err() {
                self.shown(process, StepKind::RemoveRefused(member));
            }
            refused?;
            self.etcds.agreed(process, Change::Remove(member)).await?;
            self.etcds.with(|world| world.members(process))
        };
        let members = self.ask("MemberRemove", self.limits.call, remove).await?;
        Ok(by_id(members))
    }

    async fn updated(&self, member: &Member, urls: &[PeerUrl]) -> Result<Members, Error> {
        if member.role == Role::Learner {
            self.require(
                "MemberUpdate",
                Feature::UpdateLearner,
                "it would promote the learner",
            )
            .await?;
        }
        let update = |process| async move {
            self.judged(process, StepKind::Update(member.id, urls.to_vec()));
            self.etcds.with(|world| world.is_no_learner(process))?;
            self.etcds
                .agreed(process, Change::Update(member.id, urls.to_vec()))
                .await?;
            self.etcds.with(|world| world.members(process))
        };
        let members = self.ask("MemberUpdate", self.limits.call, update).await?;
        Ok(by_id(members))
    }

    async fn moved(&self, to: MemberId) -> Result<(), Error> {
        let hand_over = |process| async move {
            self.judged(process, StepKind::MoveLeader(to));
            self.etcds.with(|world| {
                world.is_no_learner(process)?;
                if !world.has(process, Feature::MoveLeader) {
                    return Err(no(Rejection::Unsupported));
                }
                let running = world.running(process).ok_or_else(gone)?;
                if running.lead().is_none() {
                    return Err(no(Rejection::NotLeader));
                }
                if running.applied.is_voter(to) {
                    Ok(())
                } else {
                    Err(no(Rejection::BadTransferee))
                }
            })?;
            self.etcds
                .until(|world| match world.running(process) {
                    None => Some(Err(gone())),
                    Some(running) if running.leader() == Some(to) => Some(Ok(())),
                    Some(_) => {
                        world.hand_over(process, to);
                        None
                    }
                })
                .await
        };
        self.ask("MoveLeader", self.limits.call, hand_over).await
    }

    async fn hashed(&self, at: Option<Revision>, limit: Duration) -> Result<KeysHash, Error> {
        let hash = |process| async move {
            self.etcds.with(|world| {
                world.is_no_learner(process)?;
                if !world.has(process, Feature::HashKv) {
                    return Err(no(Rejection::Unsupported));
                }
                let position = world.position(process)?;
                let applied = &world.running(process).ok_or_else(gone)?.applied;
                let at = at.unwrap_or(position.revision);
                if at > position.revision {
                    return Err(no(Rejection::FutureRevision));
                }
                if at.0 < applied.compacted {
                    return Err(no(Rejection::Compacted));
                }
                let upto = usize::try_from(at.0 - 1).unwrap_or(0);
                let hash = applied.writes[..upto].iter().fold(0, |sum: u64, (key, value)| {
                    let bytes = key.bytes().chain(value.bytes());
                    bytes.fold(mixed(sum), |sum, byte| mixed(sum ^ u64::from(byte)))
                });
                Ok(KeysHash {
                    position,
                    hash: u32::try_from(hash >> 32).unwrap_or_default(),
                    compacted: Revision(applied.compacted),
                    revision: world.has(process, Feature::HashRevision).then_some(at),
                })
            })
        };
        self.ask("HashKV", limit, hash).await
    }
}

fn by_id(members: Vec<Member>) -> Members {
    members.into_iter().map(|member| (member.id, member)).collect()
}

impl Port for Line {
    fn url(&self) -> &ClientUrl {
        &self.url
    }

    fn listed(&self) -> Answer<'_, Result<Listed, Error>> {
        Box::pin(self.list())
    }

    fn add_voter<'a>(&'a self, urls: &'a [PeerUrl]) -> Answer<'a, Result<Added, Error>> {
        Box::pin(self.add(urls, Role::Voter))
    }

    fn add_learner<'a>(&'a self, urls: &'a [PeerUrl]) -> Answer<'a, Result<Added, Error>> {
        Box::pin(async move {
            self.require("MemberAdd", Feature::Learners, "it would add a voter")
                .await?;
            self.add(urls, Role::Learner).await
        })
    }

    fn promote(&self, learner: MemberId) -> Answer<'_, Result<Members, Error>> {
        Box::pin(self.promoted(learner))
    }

    fn remove(&self, member: MemberId) -> Answer<'_, Result<Members, Error>> {
        Box::pin(self.removed(member))
    }

    fn update<'a>(&'a self, member: &'a Member, urls: &'a [PeerUrl]) -> Answer<'a, Result<Members, Error>> {
        Box::pin(self.updated(member, urls))
    }

    fn position(&self) -> Answer<'_, Result<Position, Error>> {
        Box::pin(self.read_position())
    }

    fn local_position(&self) -> Answer<'_, Result<Position, Error>> {
        let position = move |process| async move { self.etcds.with(|world| world.position(process)) };
        Box::pin(self.ask("Range", self.limits.call, position))
    }

    fn status(&self) -> Answer<'_, Result<Status, Error>> {
        Box::pin(self.read_status())
    }

    fn cluster_version(&self) -> Answer<'_, Result<Option<Version>, Error>> {
        let version = move |process| async move {
            self.etcds.with(|world| {
                let running = world.running(process).ok_or_else(gone)?;
                Ok(running.applied.cluster_version.clone())
            })
        };
        Box::pin(self.ask("Version", self.limits.call, version))
    }

    fn is_auth_enabled(&self) -> Answer<'_, Result<bool, Error>> {
        Box::pin(async { self.read_position().await.map(|_| false) })
    }

    fn alarms(&self) -> Answer<'_, Result<BTreeSet<Alarm>, Error>> {
        let alarms = move |process| async move {
            self.etcds.with(|world| {
                world.is_no_learner(process)?;
                Ok(world.running(process).ok_or_else(gone)?.applied.alarms.clone())
            })
        };
        Box::pin(self.ask("Alarm", self.limits.call, alarms))
    }

    fn write_log_entries(&self, count: u64) -> Answer<'_, Result<(), Error>> {
        let write = move |process| async move {
            for _ in 1..count {
                self.etcds.with(|world| {
                    let id = world.fresh();
                    world.propose(process, id, Change::ListAlarms);
                });
            }
            self.etcds.agreed(process, Change::ListAlarms).await
        };
        Box::pin(self.ask("Alarm", self.limits.call, write))
    }

    fn disarm(&self, alarm: Alarm) -> Answer<'_, Result<(), Error>> {
        let disarm = move |process| async move {
            self.etcds.with(|world| world.is_no_learner(process))?;
            let change = Change::Alarm { alarm, stands: false };
            self.etcds.agreed(process, change).await
        };
        Box::pin(self.ask("Alarm", self.limits.call, disarm))
    }

    fn move_leader(&self, to: MemberId) -> Answer<'_, Result<(), Error>> {
        Box::pin(self.moved(to))
    }

    fn validate_downgrade<'a>(&'a self, target: &'a Version) -> Answer<'a, Result<(), Error>> {
        Box::pin(self.validated_downgrade(target))
    }

    fn enable_downgrade<'a>(&'a self, target: &'a Version) -> Answer<'a, Result<(), Error>> {
        Box::pin(self.enabled_downgrade(target))
    }

    fn cancel_downgrade(&self) -> Answer<'_, Result<(), Error>> {
        Box::pin(self.canceled_downgrade())
    }

    fn defragment(&self, limit: Duration) -> Answer<'_, Result<(), Error>> {
        let rewrite = move |process| async move {
            self.judged(process, StepKind::Defragment);
            let bytes = self.etcds.with(|world| {
                world.is_no_learner(process)?;
                Ok::<u64, Cause>(world.running(process).ok_or_else(gone)?.applied.bytes)
            })?;
            tokio::time::sleep(Duration::from_millis(bytes * 1000 / BYTES_A_SECOND + 5)).await;
            self.etcds.with(|world| {
                let running = world.running_mut(process).ok_or_else(gone)?;
                running.applied.bytes = running.applied.bytes_in_use();
                Ok(())
            })
        };
        Box::pin(self.ask("Defragment", limit, rewrite))
    }

    fn hash_keys(&self, at: Option<Revision>, limit: Duration) -> Answer<'_, Result<KeysHash, Error>> {
        Box::pin(self.hashed(at, limit))
    }
}
