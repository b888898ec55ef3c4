//! How a member is, and what keeps it well.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Call, Client};
use crate::error::Error;
use crate::id::{MemberId, Revision};
use crate::status::{Alarm, AlarmKind, KeysHash, Position, Status};
use crate::wire::{
    AlarmRequest, AlarmResponse, Empty, HashKvRequest, HashKvResponse, Headed, HeaderResponse,
    MoveLeaderRequest, RangeRequest, RangeResponse, StatusResponse,
};

const STATUS: Call = Call::cluster("/etcdserverpb.Maintenance/Status");
const ALARM: Call = Call::cluster("/etcdserverpb.Maintenance/Alarm");
const DEFRAGMENT: Call = Call::cluster("/etcdserverpb.Maintenance/Defragment");
const HASH: Call = Call::cluster("/etcdserverpb.Maintenance/HashKV");
const MOVE_LEADER: Call = Call::cluster("/etcdserverpb.Maintenance/MoveLeader");

/// The actions of an alarm request.
const ASK: i32 = 0;
const DISARM: i32 = 2;

impl Client {
    /// A linearizable read: a leader with its quorum has answered through this member, which has caught up with all
    /// that was agreed before.
    pub async fn position(&self) -> Result<Position, Error> {
        self.read(false).await
    }

    /// A read of what this member has by itself, without asking the others: it says that the process serves.
    pub async fn local_position(&self) -> Result<Position, Error> {
        self.read(true).await
    }

    async fn read(&self, serializable: bool) -> Result<Position, Error> {
        let question = RangeRequest {
            key: vec![0],
            serializable,
            count_only: true,
            ..RangeRequest::default()
        };
        let answer: RangeResponse = self.call(Call::RANGE, question).await?;
        Position::read(answer.header()).map_err(|what| self.malformed(Call::RANGE, what))
    }

    /// What the member says of itself; learners and members without a quorum answer, too.
    pub async fn status(&self) -> Result<Status, Error> {
        let answer: StatusResponse = self.call(STATUS, Empty {}).await?;
        Status::read(answer).map_err(|what| self.malformed(STATUS, what))
    }

    /// The alarms that stand in the cluster.
    pub async fn alarms(&self) -> Result<BTreeSet<Alarm>, Error> {
        let question = AlarmRequest {
            action: ASK,
            ..AlarmRequest::default()
        };
        let answer: AlarmResponse = self.call(ALARM, question).await?;
        let alarms = answer.alarms.into_iter().map(|alarm| Alarm {
            member: MemberId::new(alarm.member_id),
            kind: AlarmKind::read(alarm.alarm),
        });
        Ok(alarms.collect())
    }

    /// Ends an alarm. One that no longer stands is ended, too.
    pub async fn disarm(&self, alarm: Alarm) -> Result<(), Error> {
        let question = AlarmRequest {
            action: DISARM,
            member_id: alarm.member.map_or(0, MemberId::get),
            alarm: alarm.kind.number(),
        };
        let _: AlarmResponse = self.call(ALARM, question).await?;
        Ok(())
    }

    /// Hands leadership from this member, which must have it, to another voter.
    pub async fn move_leader(&self, to: MemberId) -> Result<(), Error> {
        let question = MoveLeaderRequest { target_id: to.get() };
        let _: HeaderResponse = self.call(MOVE_LEADER, question).await?;
        Ok(())
    }

    /// Rewrites this member's database without its holes. The member serves nothing meanwhile.
    pub async fn defragment(&self, limit: Duration) -> Result<(), Error> {
        let _: HeaderResponse = self.call_within(DEFRAGMENT, Empty {}, limit).await?;
        Ok(())
    }

    /// The hash of this member's keys up to a revision, or up to its newest.
    pub async fn hash_keys(&self, at: Option<Revision>, limit: Duration) -> Result<KeysHash, Error> {
        let question = HashKvRequest {
            revision: at.map_or(0, |revision| revision.0),
        };
        let answer: HashKvResponse = self.call_within(HASH, question, limit).await?;
        let position = Position::read(answer.header()).map_err(|what| self.malformed(HASH, what))?;
        Ok(KeysHash {
            position,
            hash: answer.hash,
            compacted: Revision(answer.compact_revision),
            revision: Some(Revision(answer.hash_revision)).filter(|revision| revision.0 > 0),
        })
    }
}
