//! Which container a process is in, by the path of its control group.

/// What container engines put before an id, in the last part of a path that names one.
const PREFIXES: &[&str] =
    &["docker-", "cri-containerd-", "containerd-", "crio-", "libpod-", "nerdctl-", "podman-"];

/// Ids of containers in the path of a control group, the innermost last.
pub fn ids(path: &str) -> Vec<&str> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut ids = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let before = place.checked_sub(1).map(|place| parts[place]);
        if let Some(id) = id(part, before)
            && ids.last() != Some(&id)
        {
            ids.push(id);
        }
    }
    ids
}

/// The id that one part of a path names, if it names one.
fn id<'a>(part: &'a str, before: Option<&str>) -> Option<&'a str> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    if let Some(name) = name.strip_prefix("lxc.payload.") {
        return Some(name);
    }
    if let Some(name) = name.strip_prefix("machine-").filter(|_| part.ends_with(".scope")) {
        return Some(name);
    }
    // containerd with systemd's driver also writes slice:engine:id.
    let name = name.rsplit(':').next().unwrap_or(name);
    let name = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    if is_id(name) {
        return Some(name);
    }
    match before {
        Some("lxc") => Some(part),
        // Engines that shorten: /docker/0123456789ab.
        Some("docker" | "libpod_parent") if name.len() >= 12 && is_hexadecimal(name) => Some(name),
        _ => None,
    }
}

/// 64 hexadecimal digits; or 32 and a number, as one cloud's agent writes.
fn is_id(name: &str) -> bool {
    if name.len() == 64 {
        return is_hexadecimal(name);
    }
    name.split_once('-').is_some_and(|(task, number)| {
        task.len() == 32
            && is_hexadecimal(task)
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn is_hexadecimal(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f2a9c0d1e4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1";

    #[test]
    fn engines_paths() {
        for path in [
            format!("/system.slice/docker-{ID}.scope"),
            format!("/docker/{ID}"),
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1b.slice/cri-containerd-{ID}.scope"
            ),
            format!("/kubepods/besteffort/pod0c1d2e3f-aaaa-bbbb-cccc-0123456789ab/{ID}"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/machine.slice/crio-{ID}.scope"),
            format!("/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:{ID}"),
        ] {
            assert_eq!(ids(&path), [ID], "{path}");
        }
        assert_eq!(ids("/lxc.payload.web1/system.slice/ssh.service"), ["web1"]);
        assert_eq!(ids("/lxc/web2"), ["web2"]);
        assert_eq!(ids("/machine.slice/machine-deb.scope/payload"), ["deb"]);
        assert_eq!(ids("/docker/0123456789ab"), ["0123456789ab"]);
    }

    #[test]
    fn what_is_not_a_container() {
        for path in [
            "/",
            "",
            "/system.slice/ssh.service",
            "/user.slice/user-1000.slice/session-3.scope",
            "/system.slice/docker.service",
            &format!("/machine.slice/libpod-conmon-{ID}.scope"),
            &format!("/machine.slice/crio-conmon-{ID}.scope"),
        ] {
            assert!(ids(path).is_empty(), "{path}");
        }
    }

    #[test]
    fn a_container_in_a_container_has_both_the_innermost_last() {
        let inner = ID.replace('3', "4");
        let path = format!("/docker/{ID}/docker/{inner}");
        assert_eq!(ids(&path), [ID, inner.as_str()]);
    }
}
