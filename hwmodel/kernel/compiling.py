"""How kernels are compiled: by Numba, without what only functions that Python calls need.

A kernel consists of some hundred parts, small functions in files of their own. Numba treats each as
if Python called it: it optimises each alone and again in all that call it, makes machine code of
it, compiles it once for each constant that it is called with, and walks through passes for Python
that no kernel has. Here a part is typed and lowered once, and what calls it is optimised once, with
all its parts: of 43 CPU seconds for the kernel of a device 10 are left (two cores, both busy).

This is written for one version of Numba (`pyproject.toml`), whose inner classes it uses.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import (
    analysis,
    cgutils,
    codegen,
    compiler,
    datamodel,
    errors,
    ir,
    ir_utils,
    ssa,
    transforms,
)  # fmt: skip
from numba.core import compiler_machinery as machinery
from numba.core import typed_passes as typed
from numba.core import untyped_passes as untyped
from numba.core.cpu import CPUContext
from numba.core.datamodel import packer
from numba.core.registry import CPUDispatcher
from numba.core.types.functions import BaseFunction
from numba.core.typing import templates
from numba.np import arrayobj

_PACKAGE = "".join(f"{len(part)}{part}" for part in __package__.split("."))
"""This package in a mangled name."""
_Dispatcher: Any = CPUDispatcher
_Function: Any = BaseFunction
_Overload: Any = templates._OverloadFunctionTemplate
_Context: Any = CPUContext
_Tuple: Any = types.BaseTuple
_PLAIN = (types.Integer, types.Boolean, types.Array, types.Record)
_OPERATORS = ("_operator", "builtins")
"""Modules of the operators whose signatures are kept."""
_KNOWN: dict[Any, Any] = {}
CONSTANT_FIELDS: dict[str, dict[str, int]] = {}
"""Of records that have a field of this name, those fields whose value is known."""


def _without_wraparound() -> None:
    """Compile the kernels' indices as they stand, not as Python's, which count from the end when
    negative: no kernel uses that, and its test on every access costs a quarter of the time."""
    original = arrayobj.fix_integer_index

    def fix_integer_index(context: Any, builder: Any, kind: Any, index: Any, size: Any) -> Any:
        if _PACKAGE not in builder.function.name:
            return original(context, builder, kind, index, size)
        return context.cast(builder, index, kind, types.intp)

    arrayobj.fix_integer_index = fix_integer_index


def _with_known_operators() -> None:
    """Look up the signature of an operator of numbers, arrays and records once for each types of
    its arguments: Numba tries dozens of candidates at each use, a quarter of its time."""
    original = _Function.get_call_type

    def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws or getattr(self.typing_key, "__module__", "") not in _OPERATORS:
            return original(self, context, args, kws)  # others may ask for the constant itself
        plain = tuple(map(types.unliteral, args))
        if not all(map(_is_plain, plain)) or isinstance(plain[0], _Tuple):
            return original(self, context, args, kws)
        key = self, context, plain
        if key not in _KNOWN:
            found = _of_operator(self, context, plain)
            _KNOWN[key] = original(self, context, plain, kws) if found is None else found
        return _KNOWN[key]

    _Function.get_call_type = get_call_type


def _is_plain(kind: Any) -> bool:
    if isinstance(kind, _Tuple):  # of indices
        return all(isinstance(each, types.Integer) for each in kind)
    return isinstance(kind, _PLAIN)


def _of_operator(function: Any, context: Any, args: Any) -> Any:
    """The signature of an operator from Numba's own candidates, which it asks last; None
    where they have none."""
    for kind in function.templates:
        if not issubclass(kind, _Overload):
            candidate = kind(context)
            try:
                found = candidate.apply(args, {})
            except errors.NumbaError:
                continue
            if found is not None:
                function._impl_keys[found.args] = candidate.get_impl_key(found)
                return found
    return None


def _with_registries_loaded_once() -> None:
    """Import what Numba can lower once: it does so again at each function, and each time that it
    does not find one, a tenth of its time."""
    original, loaded = _Context.load_additional_registries, set()

    def load_additional_registries(self: Any) -> None:
        if id(self._registries) in loaded:  # one object in all targets of a context
            for registry in list(self._registries):
                self.install_registry(registry)  # what is new in it
        else:
            loaded.add(id(self._registries))
            original(self)

    _Context.load_additional_registries = load_additional_registries


class _ByAddress:
    """How a record of arrays is passed that a kernel has one of: by where it lies."""

    def __init__(self, kind: Any, model: Any) -> None:
        self._kind, self._type = kind, model.get_value_type()

    def get_argument_type(self) -> Any:
        return self._type.as_pointer()

    def as_argument(self, builder: Any, value: Any) -> Any:
        known = builder.function.__dict__.get("by_address", {})
        if self._kind in known:
            return known[self._kind]  # its caller's, and so on
        address = cgutils.alloca_once(builder, self._type)
        builder.store(value, address)
        return address

    def from_argument(self, builder: Any, address: Any) -> Any:
        builder.function.__dict__.setdefault("by_address", {})[self._kind] = address
        return builder.load(address)


class _Packer(datamodel.ArgPacker):
    """Of arguments, of which Numba passes each pointer and each length by itself: some hundred
    where a part of a kernel is called with records of arrays, a third of the time to compile it."""

    def __init__(self, models: Any, kinds: Any) -> None:
        super().__init__(models, kinds)
        self._dm_args = [
            _ByAddress(kind, model) if _is_the_only_one(kind) else model
            for kind, model in zip(kinds, self._dm_args, strict=True)
        ]
        pattern = [model.get_argument_type() for model in self._dm_args]
        self._unflattener = packer._Unflattener(pattern)
        self._be_args = list(packer._flatten(pattern))


def _is_the_only_one(kind: Any) -> bool:
    """Whether a kernel and its parts pass on one and the same of these, as its class says."""
    return getattr(getattr(kind, "instance_class", None), "one_in_a_kernel", False)


def _with_records_by_address() -> None:
    """Pass records of arrays that a kernel has one of by their address."""

    def get_arg_packer(self: Any, kinds: Any) -> Any:
        make = _Packer if any(map(_is_the_only_one, kinds)) else datamodel.ArgPacker
        return make(self.data_model_manager, kinds)

    _Context.get_arg_packer = get_arg_packer


_without_wraparound()
_with_records_by_address()
_with_known_operators()
_with_registries_loaded_once()


def _linked(library: Any, seen: dict[Any, None]) -> None:
    """Collect what a library needs, each after what needs it, last first."""
    for needed in library._linking_libraries:
        if needed not in seen:
            if isinstance(needed, _PartLibrary):
                _linked(needed, seen)
            seen[needed] = None


class _PartLibrary(codegen.JITCodeLibrary):
    """The code of a part, which is only linked into that of others."""

    def finalize(self) -> None:
        self._finalized = True

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout


class _KernelLibrary(codegen.JITCodeLibrary):
    """The code of a kernel with all its parts."""

    def finalize(self) -> None:
        seen: dict[Any, None] = {}
        _linked(self, seen)
        self._linking_libraries = list(reversed(seen))
        super().finalize()

    def _optimize_final_module(self) -> None:
        """Without the passes before, which are for what counts references.

        NOTE: Numba names the type of a record by a number of the process: parts of two kernels that
        two processes compiled may share a name, and the first one loaded would serve both. So parts
        are known in their kernel alone.
        """
        parts = [each for each in self._linking_libraries if isinstance(each, _PartLibrary)]
        names = {f.name for part in parts for f in part._final_module.functions}
        for function in self._final_module.functions:
            if function.name in names and not function.is_declaration:
                function.linkage = "internal"
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


def _put_constants(state: Any) -> None:
    """Put known fields of the arguments into the code, and leave out what they rule out."""
    known = {}
    for name, kind in zip(state.func_ir.arg_names, state.args, strict=True):
        for field in getattr(kind, "fields", ()):
            if field in CONSTANT_FIELDS:
                known[name] = CONSTANT_FIELDS[field]
    if not known:
        return
    for block in state.func_ir.blocks.values():
        for line in block.body:
            value = getattr(line, "value", None)
            if isinstance(value, ir.Expr) and value.op == "getattr":
                constant = known.get(value.value.name, {}).get(value.attr)
                if constant is not None:
                    line.value = ir.Const(constant, line.loc)
    state.func_ir._definitions = ir_utils.build_definitions(state.func_ir.blocks)
    analysis.dead_branch_prune(state.func_ir, state.args)


def _as_assigned_once(code: Any) -> None:
    """Give each assignment a variable of its own. Numba's pass also looks, thrice, for where
    variables end, which only what counts references has to know."""
    code.blocks = transforms.canonicalize_cfg(code.blocks)
    ssa.reconstruct_ssa(code)
    code._definitions = ir_utils.build_definitions(code.blocks)
    code.generator_info = None


class _Compile(machinery.LoweringPass):
    """All passes that kernels need, in one: between two passes Numba looks at everything again."""

    def __init__(self) -> None:
        machinery.LoweringPass.__init__(self)

    def _library(self) -> Any:
        raise NotImplementedError

    def run_pass(self, state: Any) -> bool:
        untyped.TranslateByteCode().run_pass(state)
        untyped.FixupArgs().run_pass(state)
        _put_constants(state)
        _as_assigned_once(state.func_ir)
        typed.NopythonTypeInference().run_pass(state)
        typed.PreLowerStripPhis().run_pass(state)
        state.library = self._library()(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        typed.NativeLowering().run_pass(state)
        typed.NoPythonBackend().run_pass(state)
        return False


@machinery.register_pass(mutates_CFG=False, analysis_only=False)
class _CompilePart(_Compile):
    _name = "bankwise_part"

    def _library(self) -> Any:
        return _PartLibrary

    def run_pass(self, state: Any) -> bool:
        state.flags.no_compile = True  # no machine code
        super().run_pass(state)
        part = state.cr = state.cr._replace(entry_point=object())  # a name of its own
        state.targetctx.insert_user_function(part.entry_point, part.fndesc, [part.library])
        return False


@machinery.register_pass(mutates_CFG=False, analysis_only=False)
class _CompileKernel(_Compile):
    _name = "bankwise_kernel"

    def _library(self) -> Any:
        return _KernelLibrary


def _pipeline(only: type[_Compile]) -> Any:
    class Compiler(compiler.CompilerBase):
        def define_pipelines(self) -> list[Any]:
            passes = machinery.PassManager("kernel")
            passes.add_pass(only, "compiling a kernel")
            passes.finalize()
            return [passes]

    return Compiler


KernelCompiler = _pipeline(_CompileKernel)
_PartCompiler = _pipeline(_CompilePart)


class KernelPart(_Dispatcher):
    """A function that kernels alone call. Python may call its `py_func`."""

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        super().__init__(function, {}, options, _PartCompiler)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Whatever the value of a constant argument, the same code."""
        return super().get_call_template(tuple(map(types.unliteral, args)), kws)

    def compile(self, sig: Any) -> Any:
        """Type and lower it for some types of its arguments, once in a process."""
        args = tuple(sig)
        if args not in self.overloads:
            self.overloads[args] = self._compiler.compile(args, None)
        return self.overloads[args].entry_point
