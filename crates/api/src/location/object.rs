//! Names of stored objects. A single backup is named as its path says, a periodic one `path_v<revision>_<UTC time>`; what
//! only begins with the same letters is of another path.

/// The form of the time in a name.
pub const TIME: &str = "%Y-%m-%d-%H:%M:%S";

/// Whether an object is one that a backup to this path makes.
pub fn belongs(object: &str, path: &str) -> bool {
    let Some(rest) = object.strip_prefix(path) else {
        return false;
    };
    if rest.is_empty() {
        return true;
    }
    let Some((revision, time)) = rest.strip_prefix("_v").and_then(|rest| rest.split_once('_')) else {
        return false;
    };
    let is_number = !revision.is_empty() && revision.bytes().all(|byte| byte.is_ascii_digit());
    is_number && time.len() == 19 && jiff::civil::DateTime::strptime(TIME, time).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_belongs_to_its_path_and_to_no_longer_or_shorter_one() {
        for (name, path, is_mine) in [
            ("etcd", "etcd", true),
            ("etcd_v3_2019-12-15-15:57:59", "etcd", true),
            ("etcd_v10000000000_2019-12-15-15:57:59", "etcd", true),
            ("etcd2", "etcd", false),
            ("etcd2_v3_2019-12-15-15:57:59", "etcd", false),
            ("etcd_v2_v3_2019-12-15-15:57:59", "etcd", false),
            ("etcd_v2_v3_2019-12-15-15:57:59", "etcd_v2", true),
            ("etcd_v_2019-12-15-15:57:59", "etcd", false),
            ("etcd_v-3_2019-12-15-15:57:59", "etcd", false),
            ("etcd_v3_2019-13-15-15:57:59", "etcd", false),
            ("etcd_v3_2019-12-15-15:57:59 ", "etcd", false),
            ("etcd_v3_2019-12-15-15:57:59/x", "etcd", false),
            ("etc", "etcd", false),
        ] {
            assert_eq!(belongs(name, path), is_mine, "{name} at {path}");
        }
    }
}
