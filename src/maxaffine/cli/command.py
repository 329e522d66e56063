"""How a command reads its arguments: expressions may begin with a minus, unknown options are named with their nearest kin."""

import re
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperCommand

# --foo, --foo=bar, --foo-bar: what a person writes for an option.  "--x**2" and "-x+1" are expressions.
_LONG = re.compile(r"--[A-Za-z][A-Za-z0-9_-]*(=.*)?", re.DOTALL)
# Options whose value may be left out: which words are one, and what stands for none.
_OPTIONAL = {"--relative": (("pointwise", "sup"), "sup")}
_SHORT = re.compile(r"-[A-Za-z]")


class Command(TyperCommand):
    """A command with long options only; anything else that begins with a dash is an unknown option."""

    reads_expression = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put options first and what they do not take behind `--`, where no dash is special."""
        if ctx.resilient_parsing:  # a shell asks what comes next; the words need not be whole
            return super().parse_args(ctx, args)
        if args == ["-h"]:
            args = ["--help"]
        takes_value, flags = self._options()
        options: list[str] = []
        operands: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            name = word.split("=", 1)[0]
            if word == "--":
                operands += rest
                break
            if word in _OPTIONAL and word in takes_value:
                words, none = _OPTIONAL[word]
                options += [word, rest.pop(0) if rest and rest[0] in words else none]
            elif name in takes_value:
                options.append(word)
                if "=" not in word:
                    if not rest or rest[0] in takes_value | flags:
                        ctx.fail(f"the option {word} needs a value")
                    options.append(rest.pop(0))
            elif word in flags:
                options.append(word)
            elif self._is_operand(word):
                operands.append(word)
            else:
                ctx.fail(self._unknown(name, {*takes_value, *flags}))
        self._check_count(ctx, operands)
        return super().parse_args(ctx, [*options, "--", *operands])

    def _options(self) -> tuple[set[str], set[str]]:
        takes_value: set[str] = set()
        flags = {"--help"}
        for param in self.params:
            if param.param_type_name == "option":
                (flags if getattr(param, "is_flag", False) else takes_value).update([*param.opts, *param.secondary_opts])
        return takes_value, flags

    def _is_operand(self, word: str) -> bool:
        if not word.startswith("-") or word == "-":
            return True
        return self.reads_expression and not _LONG.fullmatch(word)

    def _unknown(self, name: str, known: set[str]) -> str:
        near = get_close_matches(name.strip("-"), sorted(option.strip("-") for option in known), n=1, cutoff=0.5)
        if near:
            return f"there is no option {name}; did you mean --{near[0]}?"
        aside = " An expression that looks like an option goes behind --." if self.reads_expression else ""
        return f"there is no option {name}; there are {', '.join(sorted(known))}.{aside}"

    def _check_count(self, ctx: Any, operands: list[str]) -> None:
        """Too many operands: say which, and suspect a short option or an expression that the shell cut at its blanks."""
        wanted = [param for param in self.params if param.param_type_name == "argument"]
        if len(operands) <= len(wanted):
            return
        short = next((word for word in operands if _SHORT.fullmatch(word)), None)
        if short is not None:
            ctx.fail(f"there is no option {short}; options are written out, such as --box and --out.")
        extra = " ".join(operands[len(wanted) :])
        quote = f' Quote an expression that has blanks: "{" ".join(operands)}".' if self.reads_expression else ""
        ctx.fail(f"`{extra}` is one argument too many.{quote}")


class ExpressionCommand(Command):
    """A command whose operand is an expression: -x**2 is one."""

    reads_expression = True


class CompileCommand(ExpressionCommand):
    """A command whose help ends with the methods, a line each."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The methods, from the only list of them."""
        from maxaffine.cli.completion import methods

        with formatter.section("Methods"):
            formatter.write_dl(methods(""), col_max=12)


def single() -> typer.Typer:
    """The application of one command."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
