# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Short templates that try one part of Jinja each, for make_vectors.py and compare_with_transformers.py."""

# What every snippet is rendered with.
INPUT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Grüße, 世界! 🐺\n", "name": "Ann"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "find", "arguments": {"q": "a'b\"c", "n": 3, "x": 1.0, "on": True, "no": None}}}]},
        {"role": "tool", "content": "[1, 2]"},
    ],
    "text": "The quick <b>brown</b> & fox's \"den\"",
    "lines": "one\n\n  two\r\nthree\x0bfour\u2028five\n",
    "empty": "",
    "number": 7,
    "negative": -3,
    "real": 2.5,
    "big": 123456789012345678901234567890,
    "tiny": 1e-7,
    "huge": 1e22,
    "yes": True,
    "no": False,
    "nothing": None,
    "list": [3, 1, 2],
    "words": ["pear", "Apple", "fig", "apple"],
    "mixed": [1, "1", 1.0, True, None, [], {}],
    "nested": {"b": {"c": [10, {"d": "deep"}]}, "a": 1, "items": "own", "é\"": "ü\\\n\t\x01\x7f\u2028"},
    "people": [{"name": "Bo", "age": 30, "city": {"name": "Oslo"}}, {"name": "al", "age": 25, "city": {"name": "Rome"}},
               {"name": "Cy", "age": 30, "city": {"name": "oslo"}}],
    "add_generation_prompt": True,
}

SNIPPETS = r"""
plain text
{{ text }}
{{ number }} {{ real }} {{ yes }} {{ no }} {{ nothing }} {{ missing }}|
{{ list }} {{ words }} {{ mixed }} {{ nested }}
{{ big }} {{ tiny }} {{ huge }} {{ 1e16 }} {{ 123456789.0 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ 1/3 }} {{ -0.0 }} {{ 1e300 * 1e10 }} {{ 1e-5 }} {{ 0.0001 }} {{ 100000000000000000000.0 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 4 / 2 }} {{ 1_000 + 0x1f + 0b11 + 0o17 }}
{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 'a' ~ 1 ~ none ~ 2.0 ~ missing ~ 'b' }} {{ 1 ~ 2 + 3 }}
{{ 'ab' + 'cd' }} {{ 'ab' * 3 }} {{ [1] + [2] }} {{ [0] * 3 }} {{ 3 * 'x' }} {{ (1,) + (2, 3) }} {{ (1,) }} {{ () }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 == true }} {{ 'a' == 'a' != 'b' }} {{ none == none }} {{ missing == missing2 }} {{ {} == {} }} {{ (1, 2) == [1, 2] }}
{{ 1 in list }} {{ 9 not in list }} {{ 'qu' in text }} {{ 'a' in nested }} {{ 'z' in missing }} {{ 2 in (1, 2) }} {{ not 1 in list }}
{{ yes and 'x' or 'y' }} {{ no or nothing }} {{ '' or 0 or [] }} {{ not yes }} {{ not '' }} {{ yes and no }}
{{ 'yes' if number > 3 else 'no' }} {{ 'yes' if number > 30 }}| {{ 'a' if no else 'b' if no else 'c' }}
{{ messages[0].role }} {{ messages[0]['content'] }} {{ messages[-1].role }} {{ messages[9] }}| {{ messages[1:]|length }} {{ messages[::-1][0].role }} {{ messages[1:3][1].role }}
{{ text[0] }} {{ text[-1] }} {{ text[4:9] }} {{ text[::-1] }} {{ text[100] }}| {{ text[:3] ~ text[-3:] }} {{ '世界🐺abc'[1:4] }} {{ '世界🐺'[-1] }} {{ '世界🐺'[::2] }} {{ list[5:] }} {{ list[-2:] }} {{ list[:-1] }} {{ list[::2] }} {{ list[2::-1] }} {{ list[-100:100] }}
{{ nested.b.c[1].d }} {{ nested['b']['c'][0] }} {{ nested.items is callable }} {{ nested['items'] }} {{ nested.get('a') }} {{ nested.get('zz') }} {{ nested.get('zz', 5) }} {{ nested.zz }}|{{ nested.b.zz is defined }}
{{ nested.keys()|list }} {{ nested.values()|list }} {% for k, v in nested.items() %}[{{ k }}={{ v }}]{% endfor %} {{ nested.keys() }} {{ nested.b.items() }}
{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.first }} {{ loop.last }} {{ loop.revindex }} {{ loop.index0 }} {{ loop.revindex0 }} {{ loop.depth }} {{ m.role }}; {% endfor %}
{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined }}>{{ loop.nextitem.role if loop.nextitem is defined }} {{ loop.cycle('a', 'b') }} {{ loop.changed(m.role in ['user', 'tool']) }};{% endfor %}
{% for m in [] %}x{% else %}none{% endfor %} {% for c in 'añb' %}[{{ c }}]{% endfor %} {% for k in nested %}{{ k }},{% endfor %} {% for x in missing %}y{% else %}empty{% endfor %}
{% for m in messages if m.role != 'system' %}{{ loop.index }}{{ m.role }}{{ loop.last }} {% endfor %}
{% for a, b in [(1, 2), (3, 4)] %}{{ a }}-{{ b }} {% endfor %} {% for (a, (b, c)) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %} {{ range(3) }} {{ range(2, 10, 3)|list }} {{ range(5, 0, -2)|list }} {{ range(3)[1] }} {{ range(0)|list }}
{% for i in [1, [2, [3]], 4] recursive %}{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}@{{ loop.depth0 }}{% endif %}{% endfor %}
{% set x = 1 %}{% for i in list %}{% set x = i %}{{ x }}{% endfor %}{{ x }}
{% set x %}a {{ number }} b{% endset %}[{{ x }}] {% set y | trim | upper %}  q {% endset %}[{{ y }}] {% set a, b = 1, 2 %}{{ a }}{{ b }} {% set t = 1, 2 %}{{ t }}
{% set ns = namespace(found=false, n=0) %}{% for i in list %}{% if i == 1 %}{% set ns.found = true %}{% endif %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.found }} {{ ns.n }} {{ ns.zz }}| {% set ns.new = 'x' %}{{ ns.new }} {{ ns['n'] }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }} {{ namespace().x is defined }}
{% if no %}a{% elif nothing %}b{% elif number == 7 %}c{% else %}d{% endif %} {% if messages %}m{% endif %} {% if not missing %}u{% endif %} {% if yes %}{% set inner = 5 %}{% endif %}{{ inner }}
{% macro hi(name, greeting='Hello', end=name) %}{{ greeting }} {{ name }}{{ end }}{% endmacro %}{{ hi('Bo') }} {{ hi('Al', 'Hey') }} {{ hi(greeting='Yo', name='Cy') }} {{ hi() }}| {{ hi.name }}
{% macro all() %}{{ varargs }} {{ kwargs }}{% endmacro %}{{ all(1, 2, a=3) }} {{ all() }}
{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('x') %}in {{ number }}{% endcall %} {% macro each(l) %}{% for i in l %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(v, n) each(list) %}<{{ v }}{{ n }}>{% endcall %}
{% macro fact(n) %}{{ 1 if n <= 1 else n * (fact(n - 1)|int) }}{% endmacro %}{{ fact(10) }}
{% macro show() %}{{ later }}{% endmacro %}{% set later = 'late' %}{{ show() }} {% macro opt() %}{% if caller %}c{% else %}n{% endif %}{% endmacro %}{{ opt() }}{% call opt() %}{% endcall %}
{{ '  a b '|trim }}| {{ 'xxaxx'|trim('x') }} {{ nothing|trim }} {{ '\n\t a\u3000'|trim }}|
{{ messages|length }} {{ text|length }} {{ '世界🐺'|length }} {{ nested|length }} {{ missing|length }} {{ list|count }}
{{ nested|tojson }} {{ messages|tojson }} {{ mixed|tojson }} {{ text|tojson }} {{ real|tojson }} {{ huge|tojson }} {{ tiny|tojson }} {{ big|tojson }} {{ (1, 2)|tojson }} {{ '</script>é'|tojson }}
{{ nested|tojson(indent=2) }} {{ []|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ [[], [1]]|tojson(indent=1) }} {{ list|tojson(indent='--') }} {{ nested|tojson(indent=none) }}
{{ nested|tojson(ensure_ascii=true) }} {{ '🐺é\x7f'|tojson(true) }} {{ nested|tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(sort_keys=true) }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ list|tojson(indent=2, separators=(', ', ' : ')) }}
{{ words|join(', ') }} {{ list|join }} {{ people|join('-', attribute='name') }} {{ 'abc'|join('.') }} {{ mixed|join('|') }} {{ []|join(',') }} {{ missing|join }} {{ people|join(',', 'city.name') }}
{{ missing|default('d') }} {{ ''|default('d') }}| {{ ''|default('d', true) }} {{ nothing|default('x') }} {{ nothing|d('x', boolean=true) }} {{ missing|default }}| {{ nested.q|default('dq') }}
{{ text|upper }} {{ text|lower }} {{ text|title }} {{ text|capitalize }} {{ 'straße ﬁn ǆ ÉCOLE ΑΣ'|upper }} {{ 'ÄÖÜ ΟΔΥΣΣΕΥΣ ΑΣ, İ'|lower }} {{ 'ǆ éa-b (c [d'|title }} {{ 'éCOLE ﬁ'|capitalize }} {{ 'they\'re bill\'s ǆx'.title() }} {{ 'aBß'.swapcase() }}
{{ text|replace('quick', 'slow') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'abc'|replace('', '-') }} {{ 5|replace(5, 6) }} {{ 'a'|replace('a', '') }}| {{ 'aab'.replace('a', 'x', 1) }}
{{ list|first }} {{ list|last }} {{ []|first }}| {{ []|last }}| {{ 'abc'|first }}{{ 'abc'|last }} {{ nested|first }} {{ nested|last }}
{{ list|sort }} {{ list|sort(reverse=true) }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ people|sort(attribute='age')|map(attribute='name')|list }} {{ people|sort(attribute='city.name', reverse=true)|map(attribute='name')|list }}
{{ list|reverse|list }} {{ 'abc世'|reverse }} {{ words|unique|list }} {{ words|unique(true)|list }} {{ [1, '1', 1.0, none, true, (1, 2), (1, 2)]|unique|list }} {{ people|unique(attribute='age')|map(attribute='name')|join }}
{{ nested|dictsort }} {{ {'b': 1, 'A': 2, 'c': 0}|dictsort }} {{ {'b': 1, 'A': 2, 'c': 0}|dictsort(true) }} {{ {'b': 1, 'A': 2, 'c': 0}|dictsort(by='value', reverse=true) }} {{ nested.b|items|list }} {{ missing|items|list }}
{{ people|map(attribute='name')|list }} {{ people|map(attribute='city.name')|join(',') }} {{ people|map(attribute='zip', default=0)|list }} {{ words|map('upper')|list }} {{ list|map('string')|join('+') }} {{ words|map('replace', 'p', 'q')|list }} {{ [[1, 2], [3]]|map('sum')|list }} {{ [[1, 2], [3, 4]]|map(attribute=1)|list }}
{{ list|select('odd')|list }} {{ list|reject('odd')|list }} {{ mixed|select|list }} {{ mixed|reject|list }} {{ people|selectattr('age', 'equalto', 30)|map(attribute='name')|list }} {{ people|selectattr('age', '>', 26)|list|length }} {{ people|rejectattr('name', 'in', ['al'])|list|length }} {{ messages|selectattr('tool_calls')|list|length }} {{ messages|selectattr('tool_calls', 'defined')|list|length }} {{ messages|rejectattr('role', 'eq', 'system')|first }}
{{ list|select('odd') is iterable }} {{ list|select('odd') is sequence }} {% if []|select %}generator is true{% endif %} {% set g = list|select('odd') %}{{ g|list }}{{ g|list }}
{{ list|sum }} {{ people|sum(attribute='age') }} {{ list|sum(start=10) }} {{ [0.5, 1]|sum }} {{ list|min }} {{ list|max }} {{ words|max }} {{ words|min }} {{ people|max(attribute='age') }} {{ []|max }}|
{{ '12'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ '0x1f'|int(base=16) }} {{ 2.9|int }} {{ -2.9|int }} {{ '3.7'|int }} {{ ' 5_0 '|int }} {{ true|int }} {{ none|int }} {{ '2.5'|float }} {{ 'q'|float }} {{ 3|float }} {{ '1e3'|float }} {{ 'inf'|float }} {{ [1]|int(9) }} {{ '١٢'|length }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 2.1|round(method='ceil') }} {{ 2.9|round(method='floor') }} {{ 1234.5|round(-2) }} {{ 5|round }} {{ 42.55|round(1, 'floor') }} {{ 0.5|round }} {{ negative|abs }} {{ -2.5|abs }}
{{ 'a\nb\n\nc'|indent }} {{ 'a\nb'|indent(2, true) }} {{ 'a\n\nb\n'|indent(2, blank=true) }}| {{ lines|indent('> ') }} {{ 'x'|indent(first=true) }} {{ ''|indent }}|
{{ 'ab'|center(10) }}| {{ 'ab'.center(7, '*') }} {{ 'abc'.center(6, '-') }} {{ 'ab'.ljust(5) }}| {{ 'ab'.rjust(5, '.') }} {{ '-7'.zfill(5) }} {{ 'ab'.zfill(4) }}
{{ text|truncate(12) }} {{ text|truncate(12, true) }} {{ text|truncate(15, false, '!', 0) }} {{ 'short'|truncate(3) }} {{ 'abcdefgh'|truncate(5, true, '', 0) }}
{{ '%s is %d and %.2f %5s|%-5s| %05d %x %r %%'|format('a', 3.7, 2.345, 'b', 'c', 42, 255, 'q') }} {{ '%(a)s-%(b)03d' % {'a': 1, 'b': 2} }} {{ 'x%sy' % 5 }} {{ '%s' % [1, 2] }} {{ '%+d % d %e %g' % (5, 5, 12345.678, 0.00001) }}
{{ '{} {} {0}'.format(1, 2) if no else '{0} {1} {0} {name!r:>6} {2:.2f} {3:05d} {{}}'.format(1, 'b', 2.345, 42, name='x') }} {{ '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }} {{ '{:,} {:x} {:+d} {:%} {:e}'.format(1234567, 255, 5, 0.25, 12345.678) }}
{{ text|escape }} {{ text|e|e }} {{ text|safe }} {{ ('<' ~ text|safe)|length }} {{ '<b>' + ('x'|safe) }} {{ ('x'|safe) + '<b>' }} {{ text|forceescape }} {{ 'a b/c?é'|urlencode }}
{{ list|batch(2)|list }} {{ list|batch(2, 0)|list }} {{ [1, 2, 3, 4, 5]|slice(2)|list }} {{ [1, 2, 3, 4, 5]|slice(3, 'x')|list }} {% for g in people|groupby('age') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}{% for k, v in people|groupby('city.name') %}{{ k }}{{ v|map(attribute='name')|join }} {% endfor %}
{{ 'abc'|list }} {{ nested|list }} {{ (1, 2)|list }} {{ missing|list }} {{ 5|string }} {{ none|string }} {{ list|string }} {{ {'a': 1}|attr('a') }}| {{ {'a': 1}|attr('keys') is callable }} {{ text|attr('upper') is defined }}
{{ 1 is defined }} {{ missing is defined }} {{ missing is undefined }} {{ missing is not defined }} {{ nested.a is defined and nested.a == 1 }} {{ nothing is none }} {{ nothing is not none }} {{ missing is none }}
{{ text is string }} {{ 5 is string }} {{ nested is mapping }} {{ list is mapping }} {{ list is iterable }} {{ text is iterable }} {{ 5 is iterable }} {{ nested is sequence }} {{ list is sequence }} {{ missing is sequence }} {{ missing is iterable }} {{ 5 is sequence }} {{ range(2) is sequence }}
{{ 5 is number }} {{ 5.0 is number }} {{ true is number }} {{ '5' is number }} {{ 5 is integer }} {{ true is integer }} {{ 5.0 is integer }} {{ 5.0 is float }} {{ true is boolean }} {{ 1 is boolean }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ '' is false }}
{{ 5 is equalto 5 }} {{ 5 is eq 6 }} {{ 5 is ne(6) }} {{ 5 is gt 4 }} {{ 5 is lessthan 4 }} {{ 5 is ge 5 }} {{ 5 is le 4 }} {{ 4 is divisibleby 2 }} {{ 4 is even }} {{ 4 is odd }} {{ 1 is in list }} {{ 'a' is in 'abc' }} {{ 5 is not in list }} {{ none is sameas none }} {{ 'a' is lower }} {{ 'A1' is upper }} {{ '1' is upper }} {{ range is callable }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'even' is test }}
{{ text.upper() }} {{ text.lower() }} {{ ' a '.strip() }}| {{ 'xxaxx'.strip('x') }} {{ ' a '.lstrip() }}| {{ ' a '.rstrip() }}| {{ 'abca'.rstrip('ac') }} {{ text.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a b c'.split(' ', 1) }} {{ ' a  b '.split() }} {{ ' a  b  c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b  c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a</think>b</think>c'.split('</think>')[-1] }} {{ 'a</think>b'.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}
{{ text.startswith('The') }} {{ text.endswith(('x', '"')) }} {{ text.startswith('quick', 4) }} {{ text.find('quick') }} {{ text.find('zz') }} {{ 'aXbX'.rfind('X') }} {{ '世界a'.find('a') }} {{ 'aaa'.count('a') }} {{ 'aaa'.count('') }} {{ 'abc'.index('c') }} {{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('x') }}
{{ ', '.join(words) }} {{ 'abc'.title() }} {{ 'abc'.capitalize() }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'a\tb'.expandtabs(4) }} {{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' \n'.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ 'Ab Cd'.istitle() }} {{ ''.isalpha() }} {{ 'é²'.isascii() }} {{ 'a'.isnumeric() }} {{ 'ab'.isprintable() }} {{ list.index(1) }} {{ list.count(3) }} {{ (1, 1).count(1) }} {{ nested.copy() == nested }}
{{ ['a\'b', 'a"b', 'a\'"b', 'é\n\t\\\x00\x7f\xa0\u200b\u3000😀', '\xad'] }} {{ {'k': ('t', none, true, 1.50)} }} {{ [missing] }} {{ {1: 'a', 1.0: 'b', true: 'c'} }}
{{ 'a' 'b' "c" }} {{ "\x41\u00e9\U0001F43A\101\a\q\\n" }} {{ 'tab\there' }} {{ "it's" }} {{ 'say "x"' }}
{# comment #}a{#- b -#} c {#+ d +#} e
a {{- 1 -}} b {{ 2 }} c {%- if yes -%} d {%- endif -%} e
{% raw %}{{ not }} {% this %}{% endraw %} {%- raw -%} x {%- endraw -%} y
{% filter upper %}a {{ number }}{% endfilter %} {% filter trim | replace('A', 'b') %} A {% endfilter %}| {% with a = 1, b = number %}{{ a + b }}{% endwith %}{{ a is defined }} {% block body %}in{{ number }}{% endblock %} {% generation %}{% set g = 5 %}G{{ g }}{% endgeneration %}{{ g is defined }}
{% print number %} {{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'q': 1}, r=2) }} {{ strftime_now('%Y-%m-%d %H:%M:%S %j %B') }} {{ strftime_now('%d %b %Y') }}
{{ [1, 2,] }} {{ {'a': 1,} }} {{ (1, 2,) }} {{ [] }} {{ {} }} {{ {'a': [1, {'b': none}]}['a'][1] }} {{ nested.b.c.0 }} {{ list.1 }}
{{ foo(1) if foo is defined else 'nofoo' }} {{ '%s' % ('x',) }} {{ hi is defined }} {{ loop is defined }}
{{ (messages|selectattr('role', 'equalto', 'user')|list)[-1].content.strip() }} {{ messages|map(attribute='content')|select('string')|join('|') }} {{ (messages|last).role }} {{ messages[0]['role'] == 'system' and messages[0].content is string }}
{%- set a = 'x' -%}{%- for i in range(2) -%}{{- i -}}{%- endfor -%}{{ a -}}{{ '' }}
{{ 1 if 1 is odd and 2 is even else 3 }} {{ 1 is odd == true }} {{ (1, 'a') | first }} {{ -list|first }} {{ [3,4]|last - 1 }} {{ number|string ~ 'x'|upper }} {{ not number is odd }}
{{ {'a': 1}.items() | list }} {{ {'x': {'y': 1}}.x.y }} {{ 'a'.upper().lower() ~ 'b' }} {{ [x for x in list] if no else 1 }}
{{ *list }} 
{{ dict(*[[('a', 1)]]) }} {% macro three(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ three(*list) }} {{ three(**{'a': 1, 'b': 2, 'c': 3}) }} {{ three(1, *[2, 3]) }}
{% set messages = messages[1:] %}{{ messages|length }} {% for message in messages %}{% set content = message.content %}{% if content is string and content.startswith('  ') %}{{ loop.index0 }}{% endif %}{% endfor %}{{ content is defined }}
{{ missing.attribute }}
{{ missing['x'] }}
{{ missing + 1 }}
{{ missing() }}
{{ nothing.x }}|{{ nothing['x'] }}|{{ number.x }}|{{ list.x }}|{{ text.x }}|{{ list['x'] }}|{{ text['upper'] is callable }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ none + 'a' }}
{{ 'a' < 1 }}
{{ 1 in 'a' }}
{{ 1 in 5 }}
{{ 5|length }}
{{ 1 / 0 }}
{{ text|nofilter }}
{{ text is notest }}
{% if no %}{{ text|nofilter }}{% endif %}
{{ raise_exception('Roles must alternate: ' ~ number) }}
{{ messages.append(1) }}
{{ nested.update({}) }}
{{ list.append is defined }} {{ list.pop is defined }} {{ text.__class__ is defined }} {{ nested.update is defined }}
{{ text.__class__.__mro__ }}
{% set number.x = 1 %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{{ ''.join([1]) }}
{{ 'a'.split('') }}
{{ range(1000000) }}
{% for x in 5 %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{{ loop.index }}
{% include 'x' %}
{% if %}{% endif %}
{% for x in y %}
{{ 'unclosed }}
{{ a b }}
{{ (1 }}
{% endif %}
{% break %}
{% macro f() %}{% endmacro %}{{ f(1) }}
{% macro f() %}{% endmacro %}{{ f(x=1) }}
{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}
{{ people|map('nope')|list }}
{{ people|map(attribute='name')|length }}
{{ [1, 'a']|sort }}
{{ missing|tojson }}
{{ {'a': missing}|tojson }}
{{ range(3)|tojson }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'x' }}
{{ '%s' % ('x', 'y') }}
{{ mixed|unique|list }}
{{ '{0.x.y}'.format(1) if no }}
{{ {[]: 1} }}
{{ {(1, 2): 3}[(1, 2)] if no else 1 }}
{{ missing|int }}
{{ missing|float(1.5) }}
{{ missing|abs }}
{{ missing|indent }}
{{ 5|indent }}
{{ missing|trim }}{{ missing|upper }}{{ missing|string }}{{ missing ~ '' }}{{ missing|first }}{{ missing|last }}|{{ missing|sort }}{{ missing|sum }}{{ missing|map('upper')|list }}{{ missing|replace('a', 'b') }}{{ missing|title }}{{ missing|dictsort if no }}
{{ (missing or 'x') }} {{ missing and 'x' }}| {{ missing == '' }} {{ missing == none }} {{ missing != 1 }} {{ missing in [1] }} {{ missing is in [missing2] }}
{{ -missing }}
{{ 'a' * missing }}
{{ [1, 2, 3][missing] }}|{{ nested[missing] }}|{{ list['0'] }}|{{ list[true] }}|{{ list[1.0] }}|{{ nested[1] }}|{{ text['a'] }}
{{ list[none:2] }} {{ list[1:none] }} {{ list[::none] }}
{{ list['a':] }}
{{ list[::0] }}
{{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }} {{ 3 - -3 }} {{ +5 }} {{ - - 5 }} {{ not not yes }} {{ 10 - 5 - 2 }} {{ 2 * 3 % 4 }} {{ 100 // 7 // 2 }} {{ 1 - 1.0 }} {{ true + true }} {{ 5 == 5.0 }} {{ '5' == 5 }}
{{ 'x'.__len__ is defined }} {{ nested.__getitem__ is defined }} {{ nested['__class__'] is defined }}
""".strip("\n").split("\n")

# Templates of several lines, whose white space matters.
LAYOUTS = [
    "{% if yes %}\n  a\n{% endif %}\nb\n",
    "  {% if yes %}  \n  a\n  {% endif %}\n  b",
    "x {% if yes %}\n a {% endif %} y\n",
    "{%- if yes %}\n  a\n{%- endif %}\n\n b \n\n",
    "{%+ if yes +%}\n  a\n  {%+ endif %}\nb",
    "  {#- c -#}  \n a\n  {# c #}  \n b {# c #}\n c\n   {#+ c +#}\n d",
    "\n\n{{ 1 }}\n\n{{- 2 }}\n{{ 3 -}}\n\n 4\n\n",
    "a\r\nb\rc\n{{ 'x\r\ny' }}\r\n",
    "{% for i in list %}\n{{ i }}\n{% endfor %}\n{% for i in list -%}\n {{ i }}\n{%- endfor %}",
    "\t{% set x = 1 %}\t\n\u3000{% set y = 2 %}\nz\u00a0{%- set q = 1 -%}\u3000 w",
    "{% raw %}\n {{ a }}\n {% endraw %}\n b",
    "  {% raw -%}  \n {{ a }}\n {%- endraw %}\n b",
    "   {%- raw %} x {% endraw -%}   y",
    "{{ 'a' }}\n{% if no %}\nx\n{% else %}\ny\n{% endif %}{% if yes %}\nz{% endif %}",
    "{% macro m(x) -%}\n  <{{ x }}>\n{%- endmacro %}\n{{ m(1) }}{{ m(2) }}\n",
    "{% set block %}\n  a\n  {{ number }}\n{% endset %}\n[{{ block }}]",
    "{{ {'a': {'b': 1}}}}\n{{ {'a': '}}'} }}\n{{ '%}' }}{% if '%}' %}q{% endif %}",
    "{{\n  1 +\n  2\n}}\n{%\n if yes\n%}\nx\n{%\n endif\n%}y",
    "{{ '''' }}",
    "}} %} #} { % {",
    "a{% if yes %}{% endif %}\n{% if yes %}{% endif %}\n\n{% if no %}{% endif %}\nb",
    "\n",
    "",
    "a\n\n",
    "{# unclosed",
    "{% raw %} unclosed",
    "{{ 1",
]
