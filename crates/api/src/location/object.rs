//! Names of stored objects. A one-shot backup is named exactly like its path, a periodic one
//! `path_v<revision>_<UTC time>`. Any other name with the same prefix belongs to another path.

/// Format of the time in the name of a periodic backup.
pub const TIME: &str = "%Y-%m-%d-%H:%M:%S";

/// Whether an object has a name that a backup to this path would get.
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
    fn a_backup_belongs_to_its_exact_path_only() {
        for (name, path, does_belong) in [
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
            assert_eq!(belongs(name, path), does_belong, "{name} at {path}");
        }
    }
}
