"""Words that appear where a user's name may, and that name no person: accounts of programs,
folders below /home, and words for users."""

from __future__ import annotations

_WORDS = """
root nobody admin administrator ubuntu debian centos rocky fedora opc ec2-user azureuser runner
jenkins vllm jovyan slurm slurmctld slurmd munge docker podman sudo wheel adm staff users user user1
owner vendor facility group others other daemon systemd kubernetes kube mpi mpi-operator nvidia gdm
postgres mysql redis git info support noreply no-reply contact help security github gitlab host
hosts mail secret domain gpu gpus cpu mac video render input disk sre ops dev team lab labs data
dataset datasets model models weight weights train trainer training test tests work worker workers
workspace code src app apps build bin lib conda miniconda anaconda env envs venv torch pytorch
python python3 cuda nccl deepspeed megatron llm node nodes ranks local shared scratch tmp cache home
ckpt checkpoint checkpoints output outputs log logs run runs job jobs main default public none null
true false self anonymous unknown guest service services space spaces namespace namespaces mode
process processes program programs script scripts session sessions slice limit limits quota error
errors function defined specified supplied provided requested request requests inputs interrupt
buffer buffers channel channels comment comments command commands config configuration container
containers definition device field file files format guide id ids image key library libraries login
message messages name names password path pid ping permission permissions policy prompt query
reference setting settings stack stat thread time timestamp version args arguments a all already an
and another any are as asked asks at be because before below beside but by can cannot chose confirms
did died do does down ended ends fails for force found from got had has have hit in inferred is it
its killed knows logged loses made meet moved must needs no not of off on only or out outside ran
raises reported running said saw says see set sets share should show shows so take than that the
their then this to typed under up used uses vanish want was we were when where which who whose will
with without you your bench batch step epoch loss bert may rank ray max min val owns disables checks
experience mpiexec tensorrt tensorrt-llm
"""
_PERSONS = "mark grant chase rose art bill dean frank pat hope faith drew adam"
NO_USER_NAMES = frozenset(_WORDS.split())
# names that are words too: masked where they name a user, and only there
ALSO_WORDS = frozenset(_PERSONS.split())
