"""dtplan: from a PyTorch module to a parallel module in three lines.

    plan = dtplan.plan(model, (tokens, targets), machine="h100_64", mesh={"dp": 8, "tp": 8})
    print(plan)                                       # the words; in a notebook the page
    model = plan.parallelize(model, device_mesh)      # before the optimizer is made

Planning needs nothing but this package; a module needs PyTorch 2.6 or later (pip install 'dtplan[torch]').
"""
from .errors import DtplanError, DtplanWarning, InfeasibleError, InputError
from .known_machines import Machine, fit, machine, machines
from .planning import Layout, Options, Plan, Predicted, load, plan

__all__ = ["DtplanError", "DtplanWarning", "InfeasibleError", "InputError", "Layout", "Machine", "Options", "Plan", "Predicted",
           "fit", "load", "machine", "machines", "plan"]
