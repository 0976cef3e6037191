//! Programs that know nothing of Commonhold find by its key a System V segment that another host has.

use commonhold::{CreateOptions, EntryInfo, OnLoss};
use commonhold_tests::TestHost;
use commonhold_tests::machines::{Program, machines};
use commonhold_tests::unmodified::{key, text};
use commonhold_tests::wait::until;
use std::process::Command;

const IPC_CREAT: i32 = 0o1000;
const IPC_EXCL: i32 = 0o2000;
const SIZE: usize = 50_000;

#[test]
fn a_key_names_a_segment_of_another_host() {
    let Some(machines) = machines() else { return };
    let (mut a, mut b) = (machines.program(0), machines.program(1));
    assert_eq!(b.get(SIZE, 0o600), "ENOENT");
    a.attaches(SIZE, IPC_CREAT | 0o640);
    a.says("swap 0 5", "0");
    a.says("swap 49999 6", "0");
    assert_eq!(b.get(SIZE + 1, 0o600), "EINVAL");
    assert_eq!(b.get(SIZE, IPC_CREAT | IPC_EXCL | 0o600), "EEXIST");
    b.attaches(SIZE, IPC_CREAT | 0o600);
    b.says("swap 0 7", "5");
    b.says("swap 49999 8", "6");
    a.says("swap 0 9", "7");
    a.says("swap 49999 9", "8");
    // Each kernel counts its own.
    b.says("tell", "50000 bytes, 1 attached, mode 640, owner 0");
    let mut third = machines.program(1);
    let before = third.ask("descriptors");
    third.attaches(0, 0);
    third.says("see 0", "9");
    b.says("tell", "50000 bytes, 2 attached, mode 640, owner 0");
    a.says("tell", "50000 bytes, 1 attached, mode 640, owner 0");
    assert_eq!(third.get(SIZE + 1, 0o600), "EINVAL");
    assert_eq!(third.get(SIZE, IPC_CREAT | IPC_EXCL | 0o600), "EEXIST");
    third.says("detach", "ok");
    third.says("detach", "EINVAL");
    until("nothing is left in it", || (third.ask("descriptors") == before).then_some(()));
    b.says("tell", "50000 bytes, 1 attached, mode 640, owner 0");
    // A program that is killed takes nothing with it.
    drop(b);
    a.says("swap 0 1", "9");
    third.says("attach 0 0", "ok");
    third.says("swap 0 2", "1");
    let list = |number| machines.command(number, &["ipcs"]);
    for number in [0, 1] {
        let has = |list: &str| {
            list.contains(&machines.word()) && list.contains("48.8 KiB") && list.contains("alpha")
        };
        assert!(has(&list(number)), "{}", list(number));
    }
    // Stock ipcrm removes the twin of one machine; the segment is the cluster's still, and goes by its key.
    drop((a, third));
    let mut stock = Command::new("ipcrm");
    assert!(machines.on(1, stock.args(["-M", &machines.word()])).status().expect("it runs").success());
    assert!(list(1).contains(&format!("{}  - ", machines.word())), "{}", list(1));
    let remove = || machines.command(1, &["ipcrm", "--key", &machines.word()]);
    assert_eq!(remove(), "");
    assert!(remove().contains("No such file or directory"), "{}", remove());
    assert!(!list(1).contains(&machines.word()), "{}", list(1));
    let mut late = machines.program(0);
    assert_eq!(late.get(SIZE, 0), "ENOENT", "the twin there goes when somebody asks");
    assert!(!list(0).contains(&machines.word()), "{}", list(0));
}

#[test]
fn both_write_at_once_and_no_increment_is_lost() {
    let Some(machines) = machines() else { return };
    let mut all = [machines.program(0), machines.program(1), machines.program(1)];
    for program in &mut all {
        program.attaches(SIZE, IPC_CREAT | 0o600);
        program.send("add 4096 2000");
    }
    let most = all.each_mut().map(|program| program.answer().parse::<u32>().expect("a number"));
    assert_eq!(most.iter().max(), Some(&6000));
    // A child sees and writes what its parent has, and counts.
    for program in &mut all {
        let more = program.ask("add 4096 0").parse::<u32>().expect("a number") + 1;
        program.says("child add 4096 1", &more.to_string());
        program.says("child swap 0 3", "0");
        program.says("swap 0 0", "3");
        program.says("child detach", "ok");
        program.says("child detach", "ok");
    }
    all[0].says("add 4096 0", "6003");
    all[1].says("child tell", "50000 bytes, 3 attached, mode 600, owner 0");
}

#[test]
fn what_was_removed_is_never_another() {
    let Some(machines) = machines() else { return };
    let [mut a, mut b, mut late] = [0, 1, 1].map(|number| machines.program(number));
    a.attaches(SIZE, IPC_CREAT | 0o600);
    b.attaches(SIZE, 0o600);
    assert_eq!(late.get(0, 0), "ok");
    b.says("swap 0 5", "0");
    // Where it was not made.
    b.says("remove", "ok");
    b.says("remove", "ok"); // as the kernel's own, while it is attached
    a.says("swap 0 6", "5");
    b.says("swap 0 7", "6");
    late.says("attach 0 0", "EIDRM");
    // The twin on the other machine means nothing any more.
    a.says("attach 0 0", "EIDRM");
    assert_eq!(machines.program(0).get(SIZE, 0o600), "ENOENT");
    let mut next = machines.program(1);
    next.attaches(100, IPC_CREAT | IPC_EXCL | 0o600);
    next.says("see 0", "0");
    next.says("swap 0 1", "0");
    let mut other = machines.program(0);
    other.attaches(100, 0o600);
    other.says("see 0", "1");
    late.says("attach 0 0", "EIDRM");
    a.says("swap 0 8", "7");
    b.says("see 0", "8");
    // Where it was made; and the twin elsewhere is in nobody's way.
    next.says("remove", "ok");
    other.says("attach 0 0", "EIDRM");
    let mut again = machines.program(0);
    assert_eq!(again.get(SIZE, IPC_CREAT | IPC_EXCL | 0o600), "ok");
    assert_eq!(machines.program(1).get(SIZE, 0), "ok");
    let done = machines.command(1, &["ipcrm", "--key", &machines.word()]);
    assert!(!done.contains("error"), "{done}");
    again.says("attach 0 0", "EIDRM");
    drop([a, b, late, next, other, again]);
    assert_eq!(machines.program(0).get(SIZE, 0), "ENOENT");
    let left = || machines.hosts.iter().flat_map(|host| host.connect().list("/").expect("a list")).count();
    until("nothing is left", || (left() == 0).then_some(()));
}

/// Host processes die; what is attached goes on, and so does who comes later.
#[test]
fn hosts_die_and_segments_go_on() {
    let Some(machines) = machines() else { return };
    // The registry is with the first host, the segment's home is the second.
    let [mut a, mut b] = [1, 0].map(|number| machines.program(number));
    a.attaches(SIZE, IPC_CREAT | 0o600);
    b.attaches(SIZE, 0o600);
    b.says("swap 0 1", "0");
    for number in [0, 1] {
        let before = machines.hosts[number].status().host_pid;
        machines.hosts[number].kill_host();
        a.says("swap 0 2", "1");
        b.says("swap 0 1", "2");
        b.says("detach", "ok");
        b.attaches(SIZE, 0o600);
        machines.hosts[number].wait_for_other_host(before);
        b.says("child swap 0 3", "1");
        a.says("swap 0 1", "3");
    }
    // While its home is away nobody takes the key for free, and nobody takes the twin for one that means nothing.
    machines.hosts[1].kill_both();
    let mut late = machines.program(0);
    for flags in [0o600, IPC_CREAT | 0o600, IPC_CREAT | IPC_EXCL | 0o600] {
        assert_eq!(late.get(SIZE, flags), "ENOMEM");
    }
    let list = machines.command(0, &["ipcs"]);
    assert!(list.contains(&machines.word()) && list.contains("away"), "{list}");
    b.says("remove", "ENOMEM");
    // What is this machine's alone is made, and goes.
    let mut own = machines.unmodified.run(&machines.hosts[0], "system-v");
    let mut own = Program::new(machines.on(0, own.arg(key().to_string())));
    own.attaches(SIZE, IPC_CREAT | 0o600);
    own.says("remove", "ok");
    machines.hosts[1].start_again().expect("the home starts again");
    until("the segment is found again", || (late.get(SIZE, 0o600) == "ok").then_some(()));
    late.says("attach 0 0", "ok");
    late.says("swap 0 4", "1");
    a.says("swap 0 1", "4");
    b.says("swap 0 1", "1");
    let mut later = machines.program(1);
    later.attaches(SIZE, 0o600);
    later.says("see 0", "1");
}

/// Two hosts that make the segment of a key at once: one is made, and the other finds it.
#[test]
fn of_two_that_make_it_at_once_one_does() {
    let Some(machines) = machines() else { return };
    for (flags, once) in [(IPC_CREAT | 0o600, false), (IPC_CREAT | IPC_EXCL | 0o600, true)] {
        for _ in 0..8 {
            let mut all = [0, 1, 0, 1].map(|number| machines.program(number));
            all.iter_mut().for_each(|program| program.send(&format!("get {SIZE} {flags}")));
            let mut said = all.each_mut().map(Program::answer);
            said.sort();
            assert_eq!(said, if once { ["EEXIST", "EEXIST", "EEXIST", "ok"] } else { ["ok"; 4] });
            for (number, program) in all.iter_mut().enumerate() {
                assert_eq!(program.get(SIZE, 0o600), "ok");
                program.says("attach 0 0", "ok");
                program.says(&format!("swap 0 {}", number + 1), &number.to_string());
            }
            all[0].says("remove", "ok");
        }
    }
}

#[test]
fn the_objects_mode_decides_on_every_host() {
    let Some(machines) = machines() else { return };
    let [mut owner, mut stranger, mut same] = [0, 1, 1].map(|number| machines.program(number));
    for (program, user) in [(&mut owner, 1001), (&mut stranger, 1002), (&mut same, 1001)] {
        program.says(&format!("become {user}"), "ok");
    }
    owner.attaches(SIZE, IPC_CREAT | 0o600);
    assert_eq!(stranger.get(SIZE, 0o600), "EACCES");
    assert_eq!(stranger.get(0, 0), "EACCES", "who may not read it makes no twin");
    same.attaches(SIZE, 0o600);
    assert_eq!(stranger.get(SIZE, 0o600), "EACCES");
    assert_eq!(stranger.get(0, 0), "ok", "as of the kernel's own");
    stranger.says("attach 0 0", "EACCES");
    stranger.says("remove", "EPERM");
    // Owner and mode are changed where it was made.
    same.says("mode 0644", "EPERM");
    owner.says("mode 0644", "ok");
    owner.says("tell", "50000 bytes, 1 attached, mode 644, owner 1001");
    same.says("swap 3 4", "0");
    // The twin there has the mode as it was, until it is made anew.
    stranger.says("attach 0 010000", "EACCES");
    same.says("detach", "ok");
    machines.on(1, Command::new("ipcrm").args(["-M", &machines.word()])).status().expect("it runs");
    assert_eq!(stranger.get(SIZE, 0o444), "ok");
    stranger.says("tell", "50000 bytes, 0 attached, mode 644, owner 1001");
    stranger.says("attach 0 0", "EACCES");
    stranger.says("attach 0 010000", "ok");
    stranger.says("see 3", "4");
    stranger.says("child swap 3 5", "SEGV");
    stranger.says("remove", "EPERM");
    // Its owner finds it, too, though another made the twin.
    same.attaches(SIZE, 0o600);
    same.says("see 3", "4");
    same.says("remove", "ok");
    // A twin that means nothing any more is its user's to remove.
    assert_eq!(owner.get(SIZE, IPC_CREAT | 0o600), "ok");
    assert_eq!(same.get(SIZE, 0o600), "ok");
    owner.says("remove", "ok");
    assert_eq!(stranger.get(SIZE, IPC_CREAT), "EIDRM");
    assert_eq!(same.get(SIZE, IPC_CREAT | IPC_EXCL | 0o600), "ok");
}

#[test]
fn addresses_are_the_programs() {
    let Some(machines) = machines() else { return };
    let [mut a, mut b] = [0, 1].map(|number| machines.program(number));
    const AT: u64 = 0x2345_6000_0000;
    a.attaches(SIZE, IPC_CREAT | 0o600);
    assert_eq!(b.get(SIZE, 0o600), "ok");
    b.says(&format!("attach {} 0", AT + 1), "EINVAL");
    b.says(&format!("attach {} 020000", AT + 1), "ok"); // SHM_RND
    b.says(&format!("attach {AT} 0"), "EINVAL");
    for (flags, why) in
        [("040000", "SHM_REMAP"), ("0100000", "SHM_EXEC"), ("0x100000", "SHM_SHARE_PAGE_TABLE")]
    {
        assert_eq!(b.ask(&format!("attach {} {flags}", AT + 0x100_0000)), "EINVAL", "{why}");
    }
    b.says("tell", "50000 bytes, 1 attached, mode 600, owner 0");
    b.says("move 50000 90000", "EINVAL");
    // A part that is unmapped, and one over which something else is mapped.
    b.says("swap 20480 1", "0");
    b.says("unmap 0 4096", "ok");
    b.says("child see 0", "SEGV");
    b.says("over 4096 8192", "ok");
    b.says("see 4096", &b'o'.to_string());
    a.says("see 4096", "0");
    a.says("swap 20480 2", "1");
    b.says("swap 20480 3", "2");
    b.says("detach", "ok");
    b.says("tell", "50000 bytes, 0 attached, mode 600, owner 0");
    b.says("see 4096", &b'o'.to_string());
    b.says("attach 0 0", "ok");
    b.says("see 20480", "3");
}

/// A program that is not run so sees nothing of it, and one that is run otherwise says what is missing.
#[test]
fn who_does_not_wish_it_has_it_not() {
    let Some(machines) = machines() else { return };
    let [mut a, mut b] = [0, 1].map(|number| machines.program(number));
    a.attaches(SIZE, IPC_CREAT | 0o600);
    let mut local = machines.run(1, "system-v");
    assert_eq!(local.get(SIZE, 0o600), "ENOENT");
    assert_eq!(b.get(SIZE, 0o600), "ok");
    assert_eq!(local.get(SIZE, 0o600), "EINVAL");
    assert_eq!(local.get(0, 0o600), "ok");
    local.says("attach 0 0", "EINVAL");
    // Nor does a segment of this machine alone become another's.
    a.says("remove", "ok");
    drop((a, b));
    let mut local = machines.run(0, "system-v");
    local.attaches(SIZE, IPC_CREAT | 0o600);
    assert_eq!(machines.program(1).get(SIZE, 0o600), "ENOENT");
    let mut here = machines.program(0);
    here.attaches(SIZE, 0o600);
    here.says("swap 0 1", "0");
    local.says("see 0", "1");
}

/// Who takes the name of a key with an object that is no segment keeps others from it, and leads nobody to it.
#[test]
fn an_object_of_that_name_that_is_no_segment_is_none() {
    let Some(machines) = machines() else { return };
    let host = machines.hosts[0].connect();
    let name = machines.name();
    let of = |size_bytes, tag: &str| CreateOptions {
        size_bytes,
        description: tag.into(),
        mode: 0o666,
        ..CreateOptions::default()
    };
    let strict = |options: CreateOptions| options.strict(OnLoss::Error);
    for options in [
        strict(of(8192, "nothing")),
        strict(of(100, "system-v 5000")), // fewer bytes than it says
        of(8192, "system-v 5000"),        // this host's alone
    ] {
        drop(host.create(&name, &options, None).expect("the name is free"));
        for flags in [0o600, IPC_CREAT | 0o600] {
            assert_eq!(machines.program(0).get(5000, flags), "EACCES", "{options:?}");
        }
        host.remove(&name).expect("it is there");
    }
    let evil = machines.hosts[0].worker();
    let refused = |request: &str| evil.ask(request).expect_err("it is refused").kind;
    assert_eq!(refused("create o /system-v-key-1 size=4096"), "Permission");
    let mut a = machines.program(0);
    a.attaches(SIZE, IPC_CREAT | 0o600);
    assert_eq!(refused(&format!("resize {name} 4096")), "Unsupported");
    assert_eq!(refused(&format!("rename {name} /mine")), "Unsupported");
    a.says("swap 49999 1", "0");
}

/// `commonhold run` itself.
#[test]
fn the_command_says_what_is_missing() {
    let host = TestHost::start();
    let run = |words: &[&str]| {
        let mut command = Command::new(host.program());
        command.arg("run").args(words).args(["--", "true"]).env("COMMONHOLD_HOST", host.state());
        text(&command.output().expect("it runs"))
    };
    assert!(run(&["--shared-keys"]).contains("--system-v"), "{}", run(&["--shared-keys"]));
    if !host.program().with_file_name("libcommonhold_sysv.so").exists() {
        return commonhold_tests::left_out(
            "`commonhold run`: the library is not beside the program (./run test puts it there)",
        );
    }
    let said = run(&["--system-v", "--shared-keys"]);
    assert!(said.contains("the host is in no cluster"), "{said}");
    assert_eq!(run(&["--system-v"]), "");
}

/// A twin with a link that its maker wrote himself: it leads nobody to another key's segment.
#[test]
fn a_link_leads_to_no_other_key() {
    let Some(mut machines) = machines() else { return };
    let mut secret = machines.program(1);
    secret.attaches(SIZE, IPC_CREAT | 0o600);
    secret.says("swap 0 9", "0");
    let host = machines.hosts[1].connect();
    let EntryInfo::Object(object) = host.stat(&machines.name()).expect("its object") else {
        panic!("a directory")
    };
    let link = |key: i32, uuid: u128, bytes: usize| format!("system-v-key {key:08x} {uuid:032x} {bytes}");
    let (other, uuid) = (machines.key, object.uuid);
    let unknown = uuid ^ 1;
    machines.key = key();
    let space = std::fs::read_link(format!("/proc/{}/ns/ipc", machines.hosts[1].status().host_pid))
        .expect("its namespace");
    let space = space.to_string_lossy().replace(|letter: char| !letter.is_ascii_digit(), "");
    for tag in [
        link(other, uuid, SIZE),
        link(machines.key, uuid, SIZE),
        link(machines.key, unknown, SIZE),
        link(other, uuid, SIZE).replace(' ', "  "),
    ] {
        let mut alone = machines.unmodified.alone();
        let mut maker = Program::new(machines.on(1, alone.arg(machines.key.to_string())));
        assert_eq!(maker.get(3076, IPC_CREAT | IPC_EXCL | 0o666), "ok");
        let number = maker.ask("number");
        drop(maker); // who is about to make the object is waited for
        let name = format!("/system-v-{space}-{number}-0");
        let options = CreateOptions { size_bytes: 1, description: tag, ..CreateOptions::default() };
        drop(host.create(&name, &options, None).expect("the name is free"));
        let mut victim = machines.program(1);
        let found = victim.get(0, 0);
        let attached = if found == "ok" { victim.ask("attach 0 0") } else { found };
        assert!(["ENOENT", "EIDRM"].contains(&attached.as_str()), "{}: {attached}", options.description);
        // It is root's own, who asks, and may go; else its maker removes it.
        drop(machines.on(1, Command::new("ipcrm").args(["-m", &number])).output().expect("it runs"));
        let _ = host.remove(&name); // gone with the twin
    }
}

/// A program closes what it does not know, and lives; so does what it opens afterwards.
#[test]
fn what_the_client_library_keeps_is_not_open_to_the_program() {
    let Some(machines) = machines() else { return };
    let [mut a, mut b] = [0, 1].map(|number| machines.program(number));
    a.attaches(SIZE, IPC_CREAT | 0o600);
    b.says("close", "ok");
    b.says("descriptors", "0");
    b.attaches(SIZE, 0o600);
    let kept = b.ask("descriptors");
    assert_ne!(kept, "0", "a connection, and what belongs to it");
    b.says("replace", &kept);
    b.says("executed", "0");
    for _ in 0..2 {
        b.says("close", "ok");
        b.says("open 20", "20");
        a.says("swap 0 2", "0");
        b.says("swap 0 0", "2");
        a.says("swap 8192 3", "0");
        b.says("swap 8192 0", "3");
        b.says("child swap 8192 0", "0");
    }
    b.says("detach", "ok");
    until("nothing is left in it", || (b.ask("descriptors") == "0").then_some(()));
    // Its numbers are the program's again.
    b.says("open 20", "20");
    b.says("replace", "0");
}
