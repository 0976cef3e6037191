//! Hosts that say nonsense, or what is not for them to say: they are cut off, and nobody else notices.

use commonhold::ErrorKind;
use commonhold_coherence::{Access as Right, HostId, Span, central, explicit, forwarding};
use commonhold_host::cluster::registry::{Before, News};
use commonhold_host::cluster::specimens;
use commonhold_host::cluster::wire::{Answer, Call, Claim, Member, Message, Shared};
use commonhold_host::shared::{Said, Told};
use commonhold_object::{Access, Credentials, Name, Synced};
use commonhold_tests::cluster::{cluster, free_address, sharers, sharers_of};
use commonhold_tests::stranger::{Numbers, Stranger};
use commonhold_tests::{PAGE, TestHost, Worker, wait};

const PAGES: u64 = 4;

/// Hosts whose processes add to shared words all the time, and what they are when somebody has said nonsense to them.
struct Bystanders {
    hosts: Vec<TestHost>,
    workers: Vec<Worker>,
    pids: Vec<u32>,
    addresses: Vec<String>,
    rounds: u64,
}

impl Bystanders {
    /// Three hosts; the first keeps the list and is the home.
    fn new() -> Bystanders {
        let hosts = cluster(3);
        let workers = sharers(&hosts, PAGES * PAGE as u64, "central");
        let pids = hosts.iter().map(|host| host.status().host_pid).collect();
        let address = |host: &TestHost| {
            let known = host.connect().hosts().unwrap();
            known.iter().find(|host| host.is_this).unwrap().address.to_string()
        };
        let addresses = hosts.iter().map(address).collect();
        Bystanders { hosts, workers, pids, addresses, rounds: 0 }
    }

    /// They add while `storm` rages.
    fn add_during(&mut self, storm: impl FnOnce(&Bystanders)) {
        self.workers.iter().for_each(|worker| worker.send("add m 0 4 50"));
        storm(self);
        self.check_hosts();
        self.workers.iter().for_each(|worker| drop(worker.answer().expect("it adds")));
        self.rounds += 50;
        self.check();
    }

    /// Nobody's increment is lost, no process is another one, and no host was taken for lost.
    fn check(&self) {
        for worker in &self.workers {
            assert_eq!(worker.ok("sum m 0 4"), (3 * self.rounds).to_string());
        }
        self.check_hosts();
    }

    /// No host ended, or was taken for lost.
    fn check_hosts(&self) {
        for (host, pid) in self.hosts.iter().zip(&self.pids) {
            let log = host.log();
            let faults = ["fault in this program", "host0 is lost", "host1 is lost", "host2 is lost"];
            let fault = log.lines().find(|line| faults.iter().any(|words| line.contains(words)));
            assert_eq!(fault, None);
            assert_eq!(host.status().host_pid, *pid, "{log}");
        }
    }

    /// Some log says so.
    fn said(&self, words: &str) -> bool {
        self.hosts.iter().any(|host| host.log().contains(words))
    }
}

/// A host made by hand that knows all three of them: their numbers.
fn acquainted(stranger: &Stranger, bystanders: &Bystanders) -> Vec<HostId> {
    bystanders.addresses.iter().map(|address| stranger.connect(address).unwrap()).collect()
}

fn root() -> Credentials {
    Credentials { uid: 0, gid: 0, groups: vec![] }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn open(stranger: &Stranger, home: HostId, path: &str) -> Shared {
    let call = Call::Open { name: name(path), who: root(), access: Access::ReadWrite };
    match stranger.ask(home, call).unwrap() {
        Answer::Opened(shared) => *shared,
        other => panic!("{other:?}"),
    }
}

fn hand_over(page: u32, number: u64, keeper: Option<HostId>) -> forwarding::Message {
    let keepers: std::collections::BTreeSet<HostId> = keeper.into_iter().collect();
    forwarding::Message::HandOver { page, number, keepers: keepers.clone(), before: keepers }
}

/// Messages of every sort, about an object that the sender has nothing to do with.
fn messages(object: u128, own: &Member, of_others: &Member) -> Vec<Message> {
    let said = |message| Message::Coherence { object, home: None, messages: vec![message] };
    let central = |message| said(Said::Central(message));
    let span = Span::new(0, 2);
    let claim = Claim { name: name("/shared"), object: 7, moving: None, fixed: None };
    let calls = [
        Call::Join { member: own.clone(), claims: vec![claim.clone()], before: None },
        Call::Join { member: of_others.clone(), claims: vec![claim.clone()], before: None },
        Call::Renew(Before { epoch: 1, heard: u64::MAX, seen: u64::MAX }),
        Call::Resign,
        Call::Claim(claim.clone()),
        Call::Names(vec![claim]),
        Call::Lookup(name("/shared")),
        Call::Open { name: name("/nothing"), who: root(), access: Access::ReadWrite },
        Call::WhereIs(object),
        Call::Use { object: object + 1, who: root(), access: Access::ReadWrite, number: 1, types: 0 },
        Call::GaveUp { home: of_others.host, object, former: of_others.host, number: 1 },
        Call::Leave { object, number: 1, tokens: None },
        Call::About(object),
        Call::Lost { object, pages: (u64::MAX - 1, u64::MAX) },
        Call::Look { name: name("/shared"), who: root() },
        Call::List { directory: Name::directory("/").unwrap(), after: Some(name("/a")), who: root() },
        Call::Sync { object, offset: u64::MAX, length: u64::MAX, freeze: false },
    ];
    let news = News {
        epoch: 1,
        number: u64::MAX,
        settled: u64::MAX,
        members: vec![own.clone()],
        lost: vec![(u64::MAX, of_others.host)],
    };
    let mut all: Vec<Message> =
        calls.into_iter().enumerate().map(|(at, call)| Message::Call { number: at as u64, call }).collect();
    all.extend([
        central(central::Message::Request { span, access: Right::Write, has_copy: true }),
        central(central::Message::Grant { span, access: Right::Write, with_data: true }),
        central(central::Message::Recall { page: u32::MAX, keep: Right::None }),
        central(central::Message::Invalidate { page: 0 }),
        central(central::Message::PageOut { page: 1, answers: true, keeps: Right::None }),
        central(central::Message::Done { page: 2 }),
        said(Said::Forwarding(hand_over(0, u64::MAX, None))),
        said(Said::Explicit(explicit::Message::Sync { pages: vec![0, 1, u32::MAX] })),
        Message::Answer {
            number: 3,
            answer: Ok(Answer::Synced(Synced { pages: u64::MAX, loss_generation: u64::MAX })),
        },
        Message::News(news),
    ]);
    all.extend(specimens::messages(object));
    all
}

/// A message with some of its bits turned round, cut off or made longer, or just any bytes.
fn garbled(numbers: &mut Numbers, templates: &[Message]) -> Vec<u8> {
    let mut bytes = postcard::to_stdvec(numbers.pick(templates)).unwrap();
    if numbers.below(5) == 0 {
        bytes = (0..numbers.below(300)).map(|_| numbers.draw() as u8).collect();
    }
    for _ in 0..numbers.below(4) {
        let at = numbers.below(bytes.len().max(1) as u64) as usize;
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << numbers.below(8);
        }
    }
    if numbers.below(4) == 0 {
        bytes.truncate(numbers.below(bytes.len() as u64 + 1) as usize);
    }
    if numbers.below(8) == 0 {
        bytes.extend((0..numbers.below(60_000)).map(|_| 0xff));
    }
    bytes
}

/// Whoever says what is no message is cut off; whatever else its garbage means, it harms nobody.
#[test]
fn garbage_cuts_its_sender_off_and_nobody_else_notices() {
    let mut bystanders = Bystanders::new();
    let object = {
        let scout = Stranger::new(70_000, "scout");
        let hosts = acquainted(&scout, &bystanders);
        scout.join(hosts[0], Vec::new()).unwrap();
        let object = open(&scout, hosts[0], "/shared").object;
        scout.ask(hosts[0], Call::Leave { object, number: 1, tokens: None }).unwrap();
        scout.tell(hosts[0], &Message::Call { number: 0, call: Call::Resign }, &[]).unwrap();
        object
    };
    for seed in 0..4 {
        bystanders.add_during(|bystanders| {
            let mut numbers = Numbers(seed);
            let stranger = Stranger::new(80_000 + seed as u32, &format!("stranger{seed}"));
            let hosts = acquainted(&stranger, bystanders);
            let victim = Member {
                host: hosts[1],
                name: "host1".into(),
                address: bystanders.addresses[1].parse().unwrap(),
                former: vec![],
            };
            let templates = messages(object, &stranger.me, &victim);
            let mut cut_off = 0;
            for _ in 0..150 {
                let at = numbers.below(3) as usize;
                if !stranger.is_connected(hosts[at]) {
                    // Cut off for something that it said before.
                    stranger.connect(&bystanders.addresses[at]).unwrap();
                }
                stranger.forget();
                let bytes = garbled(&mut numbers, &templates);
                let payload = vec![9; numbers.below(9000) as usize];
                let nonsense = postcard::from_bytes::<Message>(&bytes).is_err();
                if stranger.say(hosts[at], &bytes, &payload).is_ok() && nonsense {
                    stranger.cut_off_by(hosts[at]);
                    cut_off += 1;
                }
            }
            assert!(cut_off > 20, "{cut_off} messages were none");
        });
    }
    // Of one that belongs the log says why.
    let stranger = Stranger::new(90_000, "member");
    let hosts = acquainted(&stranger, &bystanders);
    stranger.join(hosts[0], Vec::new()).unwrap();
    wait::until("a log says why", || {
        if !stranger.is_connected(hosts[0]) {
            stranger.connect(&bystanders.addresses[0]).ok()?; // a moment ago it was not known yet that it belongs
        }
        stranger.say(hosts[0], &[0xff; 40], &[]).ok()?;
        stranger.cut_off_by(hosts[0]);
        bystanders.said("sent what is no message").then_some(())
    });
}

/// A host that belongs, and speaks for others or about what no process of its has opened.
#[test]
fn nobody_speaks_for_others_or_about_what_is_not_open_to_it() {
    let mut bystanders = Bystanders::new();
    bystanders.add_during(|bystanders| {
        let stranger = Stranger::new(70_000, "stranger");
        let hosts = acquainted(&stranger, bystanders);
        let call = |to: usize, call: Call| stranger.ask(hosts[to], call);
        let (list, home) = (0, 0);
        let mine = Claim { name: name("/mine"), object: 5, moving: None, fixed: None };
        // Who does not belong has no names, and opens nothing.
        let why = call(list, Call::Names(vec![mine.clone()])).unwrap_err();
        assert_eq!(why.kind, ErrorKind::Disconnected, "{why}");
        let opening = Call::Open { name: name("/shared"), who: root(), access: Access::ReadWrite };
        let why = call(home, opening).unwrap_err();
        assert!(why.message.contains("does not belong to the cluster"), "{why}");
        assert_eq!(call(list, Call::Lookup(name("/mine"))).unwrap_err().kind, ErrorKind::NotFound);
        for seeing in [
            Call::Look { name: name("/shared"), who: root() },
            Call::List { directory: Name::directory("/").unwrap(), after: None, who: root() },
        ] {
            let why = call(home, seeing).unwrap_err();
            assert!(why.message.contains("does not belong to the cluster"), "{why}");
        }
        // It joins, but not as another, in whose place it would be.
        let address = bystanders.addresses[1].parse().unwrap();
        for (host, called, says) in
            [(stranger.me.host, "host1", "in its own name alone"), (hosts[1], "host1", "for itself alone")]
        {
            let member = Member { host, name: called.into(), address, former: vec![] };
            let why = call(list, Call::Join { member, claims: vec![], before: None }).unwrap_err();
            assert!(why.message.contains(says), "{why}");
        }
        stranger.join(hosts[list], vec![mine]).unwrap();
        let why =
            call(list, Call::Claim(Claim { name: name("/shared"), object: 6, moving: None, fixed: None }))
                .unwrap_err();
        assert_eq!(why.kind, ErrorKind::Exists, "{why}");
        let shared = open(&stranger, hosts[home], "/shared").object;
        call(home, Call::Leave { object: shared, number: 1, tokens: None }).unwrap();
        // Not open to it any more.
        for (to, asked, says) in [
            (home, Call::Sync { object: shared, offset: 0, length: 4096, freeze: false }, "no process of"),
            (home, Call::About(shared), "no process of"),
            (home, Call::Lost { object: shared, pages: (0, 4) }, "no process of"),
            (
                home,
                Call::GaveUp { home: hosts[0], object: shared, former: hosts[1], number: 1 },
                "for itself alone",
            ),
            (
                1,
                Call::Claim(Claim { name: name("/x"), object: 6, moving: None, fixed: None }),
                "does not keep the cluster's list",
            ),
        ] {
            let why = call(to, asked).unwrap_err();
            assert!(why.message.contains(says), "{why}");
        }
        let nobody = Credentials { uid: 1234, gid: 1234, groups: vec![] };
        let opening = Call::Open { name: name("/shared"), who: nobody, access: Access::Read };
        assert_eq!(call(home, opening).unwrap_err().kind, ErrorKind::Permission);
        let central = |message| Message::Coherence {
            object: shared,
            home: None,
            messages: vec![Said::Central(message)],
        };
        let (span, page) = (Span::one(0), vec![0x55; PAGE]);
        let says = [
            (0, central::Message::Request { span, access: Right::Read, has_copy: false }, 0, "no process of"),
            (
                0,
                central::Message::PageOut { page: 0, answers: false, keeps: Right::None },
                PAGE,
                "no process of",
            ),
            (
                1,
                central::Message::Grant { span, access: Right::Write, with_data: true },
                PAGE,
                "only an object's home",
            ),
            (1, central::Message::Recall { page: 0, keep: Right::None }, 0, "only an object's home"),
            (2, central::Message::Invalidate { page: 0 }, 0, "only an object's home"),
            // Nor does the home take from others what it says itself.
            (
                0,
                central::Message::Grant { span, access: Right::Write, with_data: true },
                PAGE,
                "only an object's home",
            ),
            (0, central::Message::Recall { page: 0, keep: Right::None }, 0, "only an object's home"),
        ];
        for (to, message, bytes, why) in says {
            stranger.connect(&bystanders.addresses[to]).unwrap();
            stranger.forget();
            stranger.tell(hosts[to], &central(message), &page[..bytes]).unwrap();
            let said = stranger.cut_off_by(hosts[to]);
            let log = bystanders.hosts[to].log();
            assert!(said.contains(why) || log.contains(why), "{said}\n{log}");
        }
        let last = stranger.connect(&bystanders.addresses[2]).unwrap();
        assert_eq!(last, hosts[2]);
        // News are those of the list's host, and answers those of whoever was asked.
        let news = News {
            epoch: 0,
            number: u64::MAX,
            settled: 0,
            members: vec![stranger.me.clone()],
            lost: vec![(u64::MAX, hosts[1])],
        };
        stranger.tell(hosts[2], &Message::News(news), &[]).unwrap();
        stranger.connect(&bystanders.addresses[1]).unwrap();
        for number in 0..200 {
            let answer = Ok(Answer::Home(stranger.me.host));
            stranger.tell(hosts[1], &Message::Answer { number, answer }, &[]).unwrap();
        }
    });
    // Who is lost to the others says nothing any more, and its names are free.
    bystanders.workers[1].ok("create n /mine-too size=4096 central");
}

/// A host under another's number could speak for it, to whoever has not met that one.
#[test]
fn a_host_under_the_number_of_another_is_cut_off() {
    let bystanders = Bystanders::new();
    let number = bystanders.hosts[1].connect().hosts().unwrap();
    let number = number.iter().find(|host| host.is_this).unwrap().number;
    let late = free_address();
    let late = ["--plain", "--listen", &late, "--join", &bystanders.addresses[0], "--name", "late"];
    let late = TestHost::with(&late);
    let worker = late.worker();
    worker.eventually("open o /shared rw");
    let address = late.connect().hosts().unwrap();
    let address = address.iter().find(|host| host.is_this).unwrap().address.to_string();
    // It has not met host1.
    let pretender = Stranger::new(number, "pretender");
    if let Ok(host) = pretender.connect(&address) {
        pretender.cut_off_by(host);
    }
    wait::until("it is cut off, by the host or by the connection of the real one", || {
        let log = late.log();
        (log.contains("is not host1") || log.contains("one number") || log.contains("newer one"))
            .then_some(())
    });
    worker.all("map m o rw shared 0 0\nsum m 0 4");
    bystanders.check();
}

/// A host under the number of one that all have met, and newer than that: it takes nobody's place.
#[test]
fn a_host_under_the_number_of_another_that_is_connected_changes_nothing() {
    let mut bystanders = Bystanders::new();
    bystanders.add_during(|bystanders| {
        let hosts = bystanders.hosts[1].connect().hosts().unwrap();
        let number = hosts.iter().find(|host| host.is_this).unwrap().number;
        let evil = Stranger::speaking(number, "evil", |hello| hello.incarnation = u64::MAX);
        for at in [0, 2, 0, 2] {
            let why = evil.connect(&bystanders.addresses[at]).unwrap_err();
            assert!(why.message.contains("is not let in"), "{why}");
        }
    });
    for at in [0, 2] {
        let log = bystanders.hosts[at].log();
        assert!(log.contains("whose number that is") && !log.contains("may be lost"), "{log}");
    }
}

/// Whoever asks without end, and does not even belong, is answered in its turn: nobody else waits for that.
#[test]
fn who_asks_without_end_is_in_nobody_elses_way() {
    const QUESTIONS: u64 = 3000;
    let bystanders = Bystanders::new();
    let stranger = Stranger::new(70_000, "stranger");
    let home = stranger.connect(&bystanders.addresses[0]).unwrap();
    for number in 0..QUESTIONS {
        // It is waited for that it joins.
        let call = Call::Open { name: name("/shared"), who: root(), access: Access::ReadWrite };
        stranger.tell(home, &Message::Call { number, call }, &[]).unwrap();
    }
    let worker = bystanders.hosts[0].worker();
    worker.all("create l /local size=65536\nmap l l rw shared 0 0\nfill l 0 16 1\nsync l 0 65536");
    let other = bystanders.hosts[2].worker();
    other.ok("open o /shared rw");
    assert!(stranger.answers() < QUESTIONS, "they were served when all else was");
    bystanders.check();
}

/// An object whose name is gone, and that is in use, is still not everybody's.
#[test]
fn a_removed_object_is_not_anybodys() {
    let bystanders = Bystanders::new();
    let stranger = Stranger::new(70_000, "stranger");
    let hosts = acquainted(&stranger, &bystanders);
    stranger.join(hosts[0], Vec::new()).unwrap();
    let object = open(&stranger, hosts[0], "/shared").object;
    bystanders.workers[0].ok("remove /shared");
    let nobody = || Credentials { uid: 1234, gid: 1234, groups: vec![] };
    for (who, may) in [(nobody(), false), (root(), true)] {
        let used =
            stranger.ask(hosts[0], Call::Use { object, who, access: Access::ReadWrite, number: 1, types: 0 });
        match used {
            Ok(_) => assert!(may),
            Err(why) => assert!(!may && why.kind == ErrorKind::Permission, "{why}"),
        }
    }
    // Of a size that none has, or from who is not its home.
    for (size_bytes, says) in [(u64::MAX, "no object has"), (4096, "only an object's home")] {
        let told = Told { change: u64::MAX, size_bytes, room_bytes: 0, grows: true };
        let why = stranger.ask(hosts[1], Call::Size { object, told }).unwrap_err();
        assert!(why.message.contains(says), "{why}");
    }
    bystanders.check();
}

/// Something that means something, or nearly.
fn babble(numbers: &mut Numbers, how: &str, others: &[HostId]) -> (Said, usize) {
    let page = numbers.below(PAGES + 1) as u32;
    let span = Span::new(page, numbers.below(3) as u32);
    let right = *numbers.pick(&[Right::None, Right::Read, Right::Write]);
    let (who, number) = (*numbers.pick(others), numbers.below(4));
    let flag = numbers.below(2) == 0;
    let said = match how {
        "central=revert" => Said::Central(match numbers.below(7) {
            0 | 1 => central::Message::Request { span, access: right, has_copy: flag },
            2 => central::Message::Grant { span, access: right, with_data: flag },
            3 => central::Message::Recall { page, keep: right },
            4 => central::Message::Invalidate { page },
            5 => central::Message::PageOut { page, answers: flag, keeps: right },
            _ => central::Message::Done { page },
        }),
        "explicit" => Said::Explicit(match numbers.below(8) {
            0 | 1 => explicit::Message::Fetch { span },
            2 => explicit::Message::Pages { span },
            3 => explicit::Message::Sync { pages: vec![page, page + 1] },
            4 => explicit::Message::Changed { pages: vec![page + 1, page] },
            5 => explicit::Message::Known,
            6 => explicit::Message::Synced,
            _ => explicit::Message::Leave,
        }),
        _ => Said::Forwarding(match numbers.below(12) {
            0 => forwarding::Message::Read { page, who, hops: number as u32 },
            1 => forwarding::Message::Write { page, who, keeps_copy: true },
            2 => forwarding::Message::Insist { page },
            3 => forwarding::Message::Copy { page },
            4 => hand_over(page, number, flag.then_some(who)),
            5 => forwarding::Message::Invalidate { page, owner: who, number },
            6 => forwarding::Message::Invalidated { page },
            7 => forwarding::Message::Forget { page, number },
            8 => forwarding::Message::Take { page },
            9 => forwarding::Message::Missing { page },
            10 => forwarding::Message::Join,
            _ => forwarding::Message::Report {
                pages: vec![],
                settled_reverts: 0,
                speaks_for: vec![],
                is_last: flag,
            },
        }),
    };
    let bytes = said.carries().pages().len() * PAGE;
    (said, bytes)
}

/// A host that has an object open may spoil that one, as any of its users may; but it ends no host, and nothing else
/// suffers.
#[test]
fn who_babbles_about_an_object_that_it_has_open_harms_nothing_else() {
    for how in ["central=revert", "explicit", "forwarding=revert"] {
        let mut bystanders = Bystanders::new();
        let path = "/playground";
        let size = PAGES * PAGE as u64;
        let players = sharers_of(&bystanders.hosts, path, &format!("size={size} {how}"));
        players.iter().for_each(|player| drop(player.ok("fill m 0 4 1")));
        for seed in 0..3 {
            bystanders.add_during(|bystanders| {
                let mut numbers = Numbers(seed);
                // Of two whose session ended, under forwarding the one with the greater number begins anew.
                let stranger = Stranger::new(u32::MAX - 1 - seed as u32, &format!("stranger{seed}"));
                let hosts = acquainted(&stranger, bystanders);
                stranger.join(hosts[0], Vec::new()).unwrap();
                let object = open(&stranger, hosts[0], path).object;
                let others = [hosts.clone(), vec![stranger.me.host, HostId(1)]].concat();
                for _ in 0..100 {
                    let at = numbers.below(3) as usize;
                    if !stranger.is_connected(hosts[at])
                        && stranger.connect(&bystanders.addresses[at]).is_err()
                    {
                        continue;
                    }
                    let (message, bytes) = babble(&mut numbers, how, &others);
                    // It may just have been cut off.
                    let _ = stranger.tell(
                        hosts[at],
                        &Message::Coherence { object, home: None, messages: vec![message] },
                        &vec![seed as u8; bytes],
                    );
                }
                // Its loss ends whatever it began. What it said before may just be cutting it off.
                wait::until("it goes", || {
                    stranger.connect(&bystanders.addresses[0]).ok()?;
                    stranger.tell(hosts[0], &Message::Call { number: 1, call: Call::Resign }, &[]).ok()
                });
            });
        }
        // Whatever they have of it now, nobody waits for ever.
        for player in &players {
            player.send("get m 0");
            // The fault deadline of what hosts share, and some time to say so.
            assert!(player.answer_within(2 * wait::LONG).is_some(), "{how}: a page is waited for");
        }
        bystanders.workers[0].ok(&format!("remove {path}"));
        bystanders.workers[0].ok(&format!("create p {path} size=4096 {how}"));
        bystanders.check();
    }
}
