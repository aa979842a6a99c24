"""A field's text may be made, kept, joined and handed on; what looks at it is refused, whichever way it went."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from tileops_rules import NotLifted, Range, lift

TEXTS = ("a", "b")


@dataclass(frozen=True)
class Call:
    k: Annotated[int, Range(-9, 9)] = 3
    m: Annotated[int, Range(0, 3)] = 1
    eps: float = 0.5
    name: str = "plain"


KEPT = {
    "kept": "text = f'{call.k}'\nreturn text",
    "kept twice": "text = f'{call.k}'\nother = text\nreturn other",
    "one of two": "text = f'{call.k}' if call.m > 1 else 'none'\nreturn text",
    "walrus": "return None if call.m == 0 else (text := f'{call.k}') and text",
    "nested": "return f\"<{f'{call.k} of {call.m}'}>\"",
    "formatted again": "text = f'{call.k}'\nreturn f'{text}!'",
    "shown again": "text = f'{call.k}'\nreturn f'{text!s}'",
    "represented": "return f'{call.k!r} {call.name!r}'",
    "added": "return 'k is ' + f'{call.k}'",
    "added after": "text = f'{call.k}'\ntext += '!'\nreturn text",
    "str": "return str(call.k)",
    "repr": "return repr(call.name)",
    "format": "return '{} of {}'.format(call.k, call.m)",
    "format by name": "return '{k} of {m}'.format(k=call.k, m=call.m)",
    "percent": "return '%s of %s' % (call.k, call.m)",
    "percent alone": "return '%s!' % f'{call.k}'",
    "percent of percent": "return '%s %%' % call.k",
    "percent r": "return '%r' % call.name",
    "list": "texts = [f'{call.k}', 'x']\nreturn ', '.join(texts)",
    "appended": "texts = []\ntexts.append(f'{call.k}')\ntexts.append('x')\nreturn ', '.join(texts)",
    "extended": "texts = ['x']\ntexts.extend([f'{call.k}'])\nreturn ', '.join(texts)",
    "inserted": "texts = ['x']\ntexts.insert(0, f'{call.k}')\nreturn ', '.join(texts)",
    "appended where so": "texts = []\nif call.k > 3:\n    texts.append(f'{call.k}')\nif call.m > 1:\n"
    "    texts.append(f'{call.m}')\nreturn '; '.join(texts) if texts else None",
    "taken out": "texts = (f'{call.k}', f'{call.m}')\nreturn texts[0]",
    "taken out by a field": "texts = (f'{call.k}', 'b', 'c', 'd')\nreturn texts[call.m]",
    "unpacked": "first, second = f'{call.k}', 'x'\nreturn first",
    "of a dict": "texts = {'k': f'{call.k}', 'm': 'x'}\nreturn texts['k']",
    "loop": "for text in (f'{call.k}', 'x'):\n    if call.m > 1:\n        return text\nreturn None",
    "loop over a table": "for fits, text in ((call.m > 1, f'{call.k}'), (call.k > 0, 'x')):\n    if fits:\n"
    "        return text\nreturn None",
    "loop with index": "for i, text in enumerate((f'{call.k}', f'{call.m}', 'x')):\n    if call.m:\n"
    "        return text\nreturn None",
    "loop over pairs": "for fits, text in zip((call.m > 1, True), (f'{call.k}', 'x')):\n    if fits:\n"
    "        return text\nreturn None",
    "unpacked later": "pair = (call.m > 1, f'{call.k}')\nfits, text = pair\nreturn text if fits else None",
    "unpacked with a rest": "first, *rest = (f'{call.k}', 'x', 'y')\nreturn first if call.m else rest[0]",
    "unpacked within": "(first, second), third = (f'{call.k}', 'x'), 'y'\nreturn first if call.m else third",
    "generated": "return ', '.join(f'{n}' for n in (call.k, call.m))",
    "listed": "return ', '.join([f'{n}' for n in (call.k, call.m)])",
    "first": "return next((f'{call.k}' for n in (1, 2, 3) if call.m == n), None)",
    "reversed": "return ', '.join(reversed([f'{call.k}', 'x']))",
    "tuple of": "return ', '.join(tuple([f'{call.k}', 'x']))",
    "raised": "if call.m > 1:\n    raise ValueError(f'k is {call.k}')\nreturn None",
    "raised and caught": "try:\n    if call.m > 1:\n        raise ValueError('x')\nexcept ValueError:\n"
    "    return f'caught {call.k}'\nreturn None",
    "finally": "try:\n    text = f'{call.k}'\nfinally:\n    pass\nreturn text",
    "helper": "def shown(n):\n    return f'<{n}>'\nreturn shown(call.k)",
    "default": "text = 'none'\nif call.m:\n    text = f'{call.k}'\nreturn text",
    "is None": "text = f'{call.k}' if call.m else None\nreturn 'x' if text is None else text",
    "never empty": "text = f'k {call.k}' if call.m else ''\nreturn text or None",
    "lambda": "shown = lambda n: f'{n}'\nreturn shown(call.k)",
    "with a width": "return f'{call.k:>5}|{call.eps:.2f}|{call.name:>9}'",
    "while": "texts = []\nwhile len(texts) < 2:\n    texts.append(f'{call.k}')\nreturn ' '.join(texts)",
    "str of a text": "return str(f'{call.k}')",
    "format of a text": "return 'k {}'.format(f'{call.k}')",
    "multiplied": "return f'{call.k}' * 2",
    "assigned twice": "first = second = f'{call.k}'\nreturn first if call.m else second",
    "after a loop": "text = 'x'\nfor n in (1, 2):\n    if call.m == n:\n        text = f'{call.k}'\n        break\n"
    "return text",
    "starred": "texts = [f'{call.k}', 'x']\nreturn ' '.join([*texts, 'y'])",
}

LOOKED_AT = {
    "compared": "return None if f'{call.k}' == '3' else 'x'",
    "compared later": "text = f'{call.k}'\nother = text\nreturn None if other == '3' else 'x'",
    "compared the other way": "return None if '3' == f'{call.k}' else 'x'",
    "differs": "return None if f'{call.k}' != '3' else 'x'",
    "ordered": "return None if f'{call.k}' < '3' else 'x'",
    "contains": "return None if '3' in f'{call.k}' else 'x'",
    "is contained": "return None if f'{call.k}' in TEXTS else 'x'",
    "length": "return None if len(f'{call.k}') > 1 else 'x'",
    "indexed": "return f'{call.k}'[0]",
    "sliced": "return f'{call.k}'[1:]",
    "starts": "return None if f'{call.k}'.startswith('3') else 'x'",
    "upper": "return f'{call.name}'.upper()",
    "split": "return f'{call.k} {call.m}'.split()[0]",
    "replaced": "return f'{call.k}'.replace('3', '4')",
    "number": "return None if int(f'{call.k}') > 3 else 'x'",
    "truth of a text that may be empty": "return f'{call.name}' or 'x'",
    "not": "return 'x' if not str(call.name) else None",
    "if": "text = f'{call.name}'\nif text:\n    return text\nreturn None",
    "key": "return {f'{call.k}': 'x'}.get('3')",
    "set": "return None if '3' in {f'{call.k}'} else 'x'",
    "sorted": "return sorted([f'{call.k}', '3'])[0]",
    "greatest": "return max(f'{call.k}', '3')",
    "counted": "return None if [f'{call.k}'].count('3') else 'x'",
    "index": "return None if [f'{call.k}', '3'].index('3') else 'x'",
    "in a list": "return None if '3' in [f'{call.k}'] else 'x'",
    "lists compared": "return None if [f'{call.k}'] == ['3'] else 'x'",
    "formatted again with a width": "text = f'{call.k}'\nreturn f'{text:>5}'",
    "percent with a width": "return '%5s' % call.k",
    "percent with a number": "return '%5.1f' % call.eps",
    "taken out and compared": "texts = (f'{call.k}', 'x')\nreturn None if texts[0] == '3' else 'x'",
    "loop and compared": "for text in (f'{call.k}', 'x'):\n    if text == '3':\n        return None\nreturn 'x'",
    "unpacked and compared": "first, second = f'{call.k}', 'x'\nreturn None if first == '3' else 'x'",
    "unpacked later and compared": "pair = (f'{call.k}', 1)\ntext, size = pair\nreturn None if text == '3' else 'x'",
    "unpacked last and compared": "pair = (1, f'{call.k}')\nsize, text = pair\nreturn None if text == '3' else 'x'",
    "unpacked with a rest and compared": "text, *rest = [f'{call.k}', 'x']\nreturn None if text == '3' else 'x'",
    "rest compared": "size, *rest, last = [1, f'{call.k}', 'x']\nreturn None if rest[0] == '3' else 'x'",
    "loop over pairs and compared": "for text, size in ((f'{call.k}', 1), ('x', 2)):\n    if text == '3':\n"
    "        return None\nreturn 'x'",
    "letters unpacked": "first, second = f'{call.k}{call.m}'\nreturn first",
    "one of two and compared": "text = f'{call.k}' if call.m else 'x'\nreturn None if text == '3' else 'y'",
    "one branch and compared": "if call.m:\n    text = f'{call.k}'\nelse:\n    text = 'x'\n"
    "return None if text == '3' else 'y'",
    "after a loop and compared": "text = 'x'\nfor n in (1, 2):\n    if call.m == n:\n        text = f'{call.k}'\n"
    "        break\nreturn None if text == '3' else 'y'",
    "walrus compared": "return None if (text := f'{call.k}') == '3' else text",
    "assigned twice and compared": "first = second = f'{call.k}'\nreturn None if second == '3' else first",
    "assigned twice and compared first": "first = second = f'{call.k}'\nreturn None if first == '3' else second",
    "chained": "return None if '0' < f'{call.k}' < '5' else 'x'",
    "caught and compared": "try:\n    raise ValueError\nexcept ValueError:\n    text = f'{call.k}'\n"
    "return None if text == '3' else 'y'",
    "and compared": "text = call.m and f'{call.k}'\nreturn None if text == '3' else 'y'",
    "repr of a text": "return repr(f'{call.k}')",
    "represented again": "text = f'{call.k}'\nreturn f'{text!r}'",
    "represented by percent": "text = f'{call.k}'\nreturn '%r' % text",
    "represented in a list": "return f'{[str(call.k), 1]}'",
    "represented in a tuple": "texts = (f'{call.k}', 'x')\nreturn str(texts)",
    "joined and compared": "return None if ''.join([f'{call.k}', 'x']) == '3x' else 'x'",
    "str compared": "return None if str(call.k) == '3' else 'x'",
    "repr compared": "return None if repr(call.k) == '3' else 'x'",
    "format compared": "return None if '{}'.format(call.k) == '3' else 'x'",
    "percent compared": "return None if '%s' % call.k == '3' else 'x'",
    "in a later round": "text = ''\nfor n in (1, 2):\n    if text == '3':\n        return None\n"
    "    text = f'{call.k}'\nreturn 'x'",
    "iterated": "for letter in f'{call.k}':\n    return letter\nreturn None",
    "looked at by a helper": "def same(text):\n    return text == '3'\nreturn None if same(f'{call.k}') else 'x'",
    "matched": "match f'{call.k}':\n    case '3':\n        return None\nreturn 'x'",
    "hashed": "return None if hash(f'{call.k}') else 'x'",
    "the call's own": "return None if f'{call}' == 'x' else 'x'",
}


def refusal_of(body: str) -> Any:
    names = {"TEXTS": TEXTS, "__name__": __name__}
    exec("def refusal(call):\n" + textwrap.indent(body, "    "), names)
    return names["refusal"]


def said(function: Any, call: Any) -> tuple[str, Any]:
    try:
        return "gives", function(call)
    except Exception as error:  # noqa: BLE001 - compared
        return "raises", (type(error), str(error))


@pytest.mark.parametrize("name", KEPT)
def test_a_text_that_only_becomes_a_reason_lifts(name: str) -> None:
    refusal = refusal_of(KEPT[name])
    rule = lift(refusal, Call)
    for k in (-9, -1, 0, 3, 9):
        for m in range(4):
            for text, eps in (("plain", 0.5), ("", -1.0)):
                call = Call(k, m, eps, text)
                assert said(rule, call) == said(refusal, call)


@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_text_that_is_looked_at_is_refused(name: str) -> None:
    with pytest.raises(NotLifted) as caught:
        lift(refusal_of(LOOKED_AT[name]), Call)
    assert 1 <= caught.value.line <= 1 + len(LOOKED_AT[name].splitlines())
    expected = ("is looked at", "hashed", "looks at the text", "is passed to", "no symbolic answer", "repr()")
    assert any(words in caught.value.cause for words in expected), caught.value.cause
