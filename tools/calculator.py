"""A calculator: arithmetic from a syntax tree, never by `eval`, and never for long."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tools.base import ToolError

Number = int | float

_MAX_CHARS = 500
_MAX_BITS = 10_000
"""The size of the largest integer, about 3,000 digits. Every single step stays under a millisecond."""


async def calculator(expression: str) -> str:
    """Evaluate arithmetic, for example "2 * (3 + sqrt(16)) ** 2".

    It knows + - * / // % **, parentheses, pi, e, tau and the functions in `FUNCTIONS`. Floats are
    shown with 15 significant digits, so that 0.1 + 0.2 is 0.3. Complex numbers, infinities and
    integers of more than 3,000 digits are refused.

    Args:
        expression: in Python's notation.
    """
    if len(expression) > _MAX_CHARS:
        raise ToolError(f"the expression has {len(expression)} characters; at most {_MAX_CHARS} are allowed")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _format_number(_evaluate(tree.body))
    except SyntaxError as error:
        raise ToolError(f"not an arithmetic expression: {error.msg}") from None
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except OverflowError:
        raise ToolError("the result is too large") from None
    except (RecursionError, MemoryError):
        raise ToolError("the expression is nested too deeply") from None
    except ValueError as error:
        # From the parser: a null byte, or a literal of more than 4,300 digits.
        raise ToolError(str(error)) from None


def _evaluate(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _check_size(value)
        case ast.Name(id=name):
            if name not in CONSTANTS:
                raise ToolError(f"unknown name {name!r}; the constants are {', '.join(CONSTANTS)}")
            return CONSTANTS[name]
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as sign, operand=operand):
            value = _evaluate(operand)
            return -value if isinstance(sign, ast.USub) else value
        case ast.BinOp(op=ast.BitXor()):
            raise ToolError("^ is not a power here; write **")
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            return _check_size(_OPERATORS[type(op)](_evaluate(left), _evaluate(right)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            if name not in FUNCTIONS:
                raise ToolError(f"unknown function {name!r}; the functions are {', '.join(FUNCTIONS)}")
            values = [_evaluate(arg) for arg in args]
            given = f"{name}({', '.join(map(_format_number, values))})"
            try:
                return _check_size(FUNCTIONS[name](*values))
            except ValueError:
                raise ToolError(f"{given} is not a real number") from None
            except TypeError:
                raise ToolError(f"{given} has the wrong number or kind of arguments") from None
        case _:
            raise ToolError(f"{ast.unparse(node)!r} is not arithmetic; use numbers, + - * / // % **, and functions")


def _check_size(value: Any) -> Number:
    if isinstance(value, complex):
        raise ToolError("the result is a complex number, which is not supported")
    if isinstance(value, int) and value.bit_length() <= _MAX_BITS:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise OverflowError


def _power(base: Number, exponent: Number) -> Any:
    # Seen beforehand, because the power itself may take for ever.
    integers = isinstance(base, int) and isinstance(exponent, int)
    if integers and abs(base) > 1 and exponent * (abs(int(base)).bit_length() - 1) > _MAX_BITS:
        raise OverflowError
    return base**exponent


def _factorial(n: Number) -> int:
    if n > 1_000:
        raise ToolError("factorial goes up to 1000")
    return math.factorial(n)  # type: ignore[arg-type]  # a float raises the TypeError that is reported


def _comb(n: Number, k: Number) -> int:
    if n > 1_000:
        raise ToolError("comb goes up to n = 1000")
    return math.comb(n, k)  # type: ignore[arg-type]  # a float raises the TypeError that is reported


def _round(value: Number, digits: Number = 0) -> Number:
    if abs(digits) > 400:
        raise ToolError("round takes at most 400 digits")
    return round(value, digits) if digits else round(value)  # type: ignore[arg-type]  # as above


def _min(*values: Number) -> Number:
    return min(values)


def _max(*values: Number) -> Number:
    return max(values)


def _sum(*values: Number) -> Number:
    return sum(values)


CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau}

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "ln": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "atan2": math.atan2,
    "sinh": math.sinh,
    "cosh": math.cosh,
    "tanh": math.tanh,
    "degrees": math.degrees,
    "radians": math.radians,
    "hypot": math.hypot,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": _round,
    "abs": abs,
    "min": _min,
    "max": _max,
    "sum": _sum,
    "gcd": math.gcd,
    "lcm": math.lcm,
    "factorial": _factorial,
    "comb": _comb,
}

_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}


def _format_number(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    rounded = float(f"{value:.15g}")
    return str(int(rounded)) if rounded.is_integer() and abs(rounded) < 1e15 else repr(rounded)
