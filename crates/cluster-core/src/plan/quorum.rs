//! How many voters it takes to decide. Everything that counts voters counts here.

/// How many of so many voters it takes to decide.
pub fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// Voters, and how many of them are healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoterCount {
    /// All of them.
    pub voters: usize,
    /// Those that are healthy.
    pub healthy: usize,
}

impl VoterCount {
    /// Whether the healthy ones are a majority; false without voters.
    pub fn has_quorum(self) -> bool {
        self.voters > 0 && self.healthy >= majority(self.voters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_voters_decide_nothing() {
        for (voters, healthy, has_quorum) in [
            (0, 0, false),
            (1, 0, false),
            (1, 1, true),
            (2, 1, false),
            (3, 2, true),
            (4, 2, false),
            (5, 3, true),
        ] {
            let count = VoterCount { voters, healthy };
            assert_eq!(count.has_quorum(), has_quorum, "{count:?}");
        }
    }
}
