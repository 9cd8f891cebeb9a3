"""A host is reached as the inventory says, its variables before options of the command line, or
refused with the reason and the hosts."""

from __future__ import annotations

import pytest

from unhang.audit.ways.opening import InventoryHost
from unhang.audit.ways.ssh_reach import given_options, reach_of, refusals
from unhang.core.errors import UserError


def host(name="gpu001", *, secrets=(), **values):
    return InventoryHost(name, values, list(secrets))


def test_variables_of_the_host_come_before_options_of_the_command_line():
    given = given_options(
        [
            "--user=typed",
            "--private-key=/typed",
            "--ssh-common-args=-J typed",
            "--become",
            "--become-user=admin",
        ]
    )
    plain = reach_of(host(), given)
    assert plain.argv[-2:] == ("--", "gpu001")
    assert [plain.argv[plain.argv.index(word) + 1] for word in ("-l", "-i", "-J")] == [
        "typed",
        "/typed",
        "typed",
    ]
    assert plain.become == ("sudo", "-H", "-n", "-u", "admin")
    own = {
        "ansible_user": "own",
        "ansible_port": 2222,
        "ansible_host": "10.0.0.1",
        "ansible_become": "no",
        "ansible_ssh_common_args": '-o ProxyCommand="ssh -W %h:%p gate"',
    }
    reach = reach_of(host(**own), given)
    assert [reach.argv[reach.argv.index(word) + 1] for word in ("-l", "-p", "--")] == [
        "own",
        "2222",
        "10.0.0.1",
    ]
    assert "ProxyCommand=ssh -W %h:%p gate" in reach.argv
    assert reach.become == ()


def test_an_address_is_no_option_of_ssh_and_host_keys_are_checked():
    argv = reach_of(host("-oProxyCommand=touch /tmp/x"), {}).argv
    assert argv[argv.index("--") + 1 :] == ("-oProxyCommand=touch /tmp/x",)
    assert "BatchMode=yes" in argv
    assert not [word for word in argv if "StrictHostKeyChecking" in word]


def test_the_collectors_options_are_the_modules():
    policy = {"torch": {"environments": ["/opt/torch"]}}
    reach = reach_of(
        host(
            unhang_policy=policy,
            unhang_silence_s=2,
            unhang_node_timeout_s="30",
            ansible_python_interpreter="auto_silent",
        ),
        {},
    )
    assert reach.options == {"torch_environments": ["/opt/torch"], "silence_s": 2}
    assert (reach.timeout_s, reach.interpreter) == (30, "/usr/bin/python3")


@pytest.mark.parametrize(
    ("one", "options", "typed", "reason"),
    [
        (host(ansible_connection="local"), [], [], "the connection 'local' for gpu001"),
        (host(secrets=["ansible_password"]), [], [], "a password (ansible_password) for gpu001"),
        (
            host(ansible_become=True, ansible_become_method="su"),
            [],
            [],
            "the become plugin 'su' or options of it for gpu001",
        ),
        (
            host(),
            ["--become", "--become-method=doas"],
            [],
            "the become plugin 'doas' or options of it for gpu001",
        ),
        (host(), ["--ask-become-pass"], [], "a password for gpu001"),
        (host(), [], ["-K"], "a password for gpu001"),
        (host(), [], ["--connection=paramiko"], "a connection of the command line for gpu001"),
    ],
)
def test_what_ssh_alone_cannot_do_is_refused(one, options, typed, reason):
    assert refusals(
        [one, host("gpu002", ansible_become_method="su")], given_options(options), typed
    )[0].startswith(reason[: reason.index(" for ")])
    assert refusals([one], given_options(options), typed) == [reason]


def test_what_plain_ssh_does_is_not_refused():
    usual = [
        host(ansible_connection="ssh"),
        host(ansible_become=True),
        host(ansible_become=False, ansible_become_method="su"),
    ]
    assert refusals(usual, given_options(["--become"]), ["-e", "x=1", "--become"]) == []


@pytest.mark.parametrize(
    "values", [{"unhang_node_timeout_s": "soon"}, {"ansible_ssh_common_args": "-o 'open"}]
)
def test_values_that_are_none_are_one_line(values):
    with pytest.raises(
        UserError,
        match=r"^gpu001 has settings of ssh that are not numbers of seconds or arguments: ",
    ):
        reach_of(host(**values), {})
