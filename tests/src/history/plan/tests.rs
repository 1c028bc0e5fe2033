use super::*;

fn on(faults: bool) -> Setting {
    Setting {
        servers: 2,
        faults,
        controllers: false,
        guarded: true,
        soak: false,
    }
}

#[test]
fn the_same_seed_makes_the_same_plan() {
    for number in 0..50 {
        assert_eq!(
            Plan::new(7, number, on(true), None),
            Plan::new(7, number, on(true), None)
        );
        assert_ne!(
            Plan::new(7, number, on(true), None),
            Plan::new(8, number, on(true), None)
        );
    }
}

#[test]
fn every_plan_has_clients_that_may_collide() {
    for number in 0..500 {
        assert!(Plan::new(1, number, on(true), None).may_collide());
    }
}

#[test]
fn the_area_of_an_object_is_what_was_planned() {
    for (number, controllers) in (0..300).flat_map(|number| [(number, false), (number, true)]) {
        let setting = Setting {
            controllers,
            ..on(false)
        };
        let plan = Plan::new(3, number, setting, None);
        for step in plan.clients.into_iter().flatten() {
            if let Op::Create(create) = step.op {
                let prefix = prefix(number);
                let spec = &plan.whose.body(&create, &prefix, 1)["spec"];
                let is_one = matches!(plan.whose, Whose::Operators { .. });
                assert_eq!(
                    if is_one {
                        Area(1)
                    } else {
                        area_of(&prefix, spec)
                    },
                    create.object.area
                );
                assert_eq!(number_of(&create.object.name), Some(number));
            }
        }
    }
}

#[test]
fn a_backup_and_a_restore_of_one_namespace_collide_and_backups_do_not() {
    let (one, other) = (Area(0b011), Area(0b110));
    let object = |(kind, name, area): (Kind, &str, Area)| Object {
        kind,
        name: name.to_owned(),
        area,
    };
    for (left, right, expected) in [
        ((Kind::Backup, "x", one), (Kind::Restore, "x", other), true),
        ((Kind::Restore, "x", one), (Kind::Restore, "y", other), true),
        ((Kind::Backup, "x", one), (Kind::Backup, "y", other), false),
        (
            (Kind::Restore, "x", one),
            (Kind::Restore, "x", other),
            false,
        ),
        (
            (Kind::Backup, "x", Area(1)),
            (Kind::Restore, "y", other),
            false,
        ),
    ] {
        assert_eq!(
            object(left).collides(&object(right)),
            expected,
            "{left:?} {right:?}"
        );
    }
}

#[test]
fn a_soak_does_everything_that_only_a_soak_does() {
    let done = |setting: Setting| {
        let plans = (0..300).map(|number| Plan::new(1, number, setting, None));
        let steps = plans.flat_map(|plan| plan.clients.concat());
        let soak = |step: Step| {
            if let Op::Soak(op) = step.op {
                Some(op.name())
            } else {
                None
            }
        };
        steps
            .filter_map(soak)
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    };
    let controllers = Setting {
        controllers: true,
        ..on(true)
    };
    assert_eq!(done(controllers), 0);
    assert_eq!(
        done(Setting {
            soak: true,
            ..controllers
        }),
        7
    );
}

#[test]
fn every_fault_of_a_request_is_planned_about_as_often_as_every_other() {
    let mut planned = std::collections::BTreeMap::<Point, u32>::new();
    for step in (0..2000).flat_map(|number| Plan::new(1, number, on(true), None).clients.concat()) {
        if let Op::Create(Create {
            fault: Some(point), ..
        }) = step.op
        {
            *planned.entry(point).or_default() += 1;
        }
    }
    assert_eq!(planned.len(), Point::OF_ONE_REQUEST.len());
    let (least, most) = (
        planned.values().min().unwrap(),
        planned.values().max().unwrap(),
    );
    assert!(*least > 50 && *most < 2 * least, "{planned:?}");
}
