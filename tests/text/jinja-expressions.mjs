// Expressions and statements of templates; Python's jinja2 computes what each gives. Each line of a list is one.
const NONE = "none; true; false; 1 is true; true is true; 0 is false; none is none";
const lines = (text) => text.trim().split("\n");

/** Templates within {{ }}. */
const VALUES = String.raw`
"xxaxx".strip("x")
"xxaxx".rstrip("x")
"xxaxx".lstrip("x")
"abcXcba".strip("abc")
"  two spaces\n\n    indented  ".strip()
"\ttab".lstrip("\n")
"\u00a0\x1ca\x85\ufeff".strip()|length
"a,b,,c".split(",")
"a,b,,c".split(",", 1)
"a,b,,c".rsplit(",", 1)
"  a  b c ".split()
"  a  b c ".split(none, 1)
"  a  b c ".rsplit(none, 1)
" a b ".split(none, 0)
"a<think>b</think>c".split("</think>")[-1].lstrip("\n")
"aaa".rsplit("aa")
"a\nb\r\nc\x85d\u2028e\n".splitlines()
"a\nb\r\n".splitlines(true)
"a-b-c".partition("-")
"a-b-c".rpartition("-")
"abc".partition("x")
"abcabc".count("bc")
"aaaa".count("aa")
"abc".count("")
"abcabc".find("c")
"abcabc".find("x")
"abcabc".rfind("c")
"😀abc".find("c")
"abcabc".index("b", 2)
"abc".startswith(("x", "a"))
"abc".endswith("bc")
"abcabc".startswith("bc", 1)
"123".isdigit()
"12²".isdigit()
"12²".isdecimal()
"½".isalnum()
"abc".isalpha()
"ab1".isalnum()
" \n".isspace()
"ABC".isupper()
"aBC".islower()
"hello wOrld's".title()
"hello wOrld's end-of".title()
"hello world-x (y)"|title
"éa ΑΣ".capitalize()
"ΑΣ ΑΣ".lower()
"straße".upper()
"abc".center(8)
"abcd".center(9, "*")
"abc"|center(10)
"ab".ljust(5) ~ "|"
"ab".rjust(5, "-")
"-42".zfill(6)
"abc".removeprefix("a")
"abc".removesuffix("bc")
"aXbXc".replace("X", "-", 1)
"abc".replace("", "-")
"a{}b{}".format(1, none)
"{1}{0}{x}".format("a", "b", x=true)
"{{}}".format()
"%s and %d and %5.2f|%-5s|%05d" % ("a", 3, 2.5, "b", 42)
"%s" % none
"%r %s" % ("a'b", [1, "x"])
"%(a)s %%" % {"a": true}
"%x %X %o" % (255, 255, 8)
"%.0f %.0f %.1f" % (0.5, 1.5, 0.25)
"%s %s"|format("a", 1)
"%(x)s"|format(x=1)
"a" * 3
3 * "ab"
[1, 2] * 2
-7 % 3
7 % -3
-7 // 2
7 // -2
7.5 // 2
7 / 2
4 / 2
2 ** 10
2 ** -1
-2 ** 2
1e3
1.0
100000000000000000000.0
1e-5
0.1 + 0.2
1e16
123456789012345.6
1_000
0x1f + 0b11 + 0o17
true + 1
1 == 1.0
1 == true
"1" == 1
none == false
[1, "a", none, true, 1.5]
{"a": 1, "b": [none, "x'y"], 2: (1,)}
(1, "a")
()
"it's"
["it's", 'say "x"', "both '\"", "tab\t\u00e9\u200b\x7f"]
{"a": {"b": undefined_name}}.a.b is undefined
{"items": 1}.items is callable
{"items": 1}["items"]
{"b": 1, "a": 2}.items()|list
{"b": 1, "a": 2}.keys()
{"b": 1, "a": 2}.values()
{"b": 1}.items()
{"b": 1}.get("c")
{"b": 1}.get("c", 5)
{"b": 1, "a": 2}|dictsort
{"b": 1, "a": 2}|dictsort(reverse=true)
{"b": 1, "a": 2}|dictsort(by="value")
{"b": 1}|items|list
"a" in "abc"
"x" in {"x": 1}
2 not in [1, 3]
1 < 2 < 3
"a" < "b"
"Z" < "a"
"\ue000" < "😀"
[1, 2] < [1, 3]
1 if false
(1 if false) is undefined
"a" if true else "b"
not 1 or 2 and 3
1 and "x"
"" or "y"
1 ~ none ~ true ~ 1.0
"abc"[1]
"abc"[-1]
"abc"[::-1]
"a😀bc"[1:3]
"a😀bc"|length
"a😀bc"|list
"a😀bc"|reverse
[1, 2, 3, 4][1:]
[1, 2, 3, 4][::2]
[1, 2, 3, 4][::-1]
[1, 2, 3, 4][-1:0:-2]
[1, 2, 3, 4][10] is undefined
(1, 2, 3)[:2]
[3, 1, 2]|sort
["b", "A", "c"]|sort
["b", "A", "c"]|sort(case_sensitive=true)
[{"a": 2}, {"a": 1}]|sort(attribute="a")
[3, 1, 2]|max
["b", "A"]|min
[]|max is undefined
[1, 2, 3]|sum
[{"a": 2}, {"a": 1}]|sum(attribute="a")
[1, 2]|sum(start=10)
["a", none, 1]|join(", ")
"abc"|join("-")
[{"n": "a"}, {"n": "b"}]|join("/", attribute="n")
["a", 1, "b"]|select("string")|list
[0, 1, 2]|select|list
[1, 2, 3]|reject("odd")|list
[{"role": "a"}, {"role": "b"}]|selectattr("role", "equalto", "a")|list
[{"role": "a"}, {"role": "b"}]|rejectattr("role", "in", ["a"])|list
[{"x": {"y": 1}}, {"x": {}}]|map(attribute="x.y", default=0)|list
[1, none]|map("string")|list
["a", "b"]|map("upper")|join
["a", "A", "b"]|unique|list
[1, 2, 3]|first
[1, 2, 3]|last
"abc"|first
[1, 2, 3, 4, 5]|batch(2)|list
[1, 2, 3]|batch(2, 0)|list
[{"k": "a", "v": 1}, {"k": "b", "v": 2}, {"k": "a", "v": 3}]|groupby("k")
2.5|round
3.5|round
2.675|round(2)
2.1|round(0, "ceil")
7|round
1234.5|round(-2)
"42.7"|int
"x"|int(-1)
none|int
" 12 "|int
"1e2"|float
"x"|float
3|float
-3|abs
-3.0|abs
"a b  c"|wordcount
"a very long text for here"|truncate(10)
"a very long text for here"|truncate(10, true, "…", 0)
"a\nb\n\nc"|indent
"a\nb\n\nc"|indent(2, true, true)
"a\nb"|indent("> ")
" x "|trim
"xxaxx"|trim("x")
"ABC"|lower|capitalize
"aXb"|replace("X", "-")
12|string|length
"x"|default("d")
nothing|default("d")
nothing|d
""|default("d", true)
none|default("d")
[1, 2]|length
{"a": 1}|count
nothing|length
nothing ~ "a"
nothing|upper
nothing is defined
nothing in []
"a" is string
1 is number
true is number
true is integer
1.0 is float
1 is integer
true is boolean
none is none
[] is iterable
"a" is iterable
1 is iterable
{} is mapping
[] is sequence
{} is sequence
{}.items() is sequence
4 is even
3 is odd
9 is divisibleby 3
1 is true
true is true
false is false
1 is sameas true
5 is gt 3
5 is in [5]
5 is not in [5]
"a" is eq "a"
range is callable
{"a": "é<>&'", "b": [1, none, true, 1.5]}|tojson
{"a": "é"}|tojson(ensure_ascii=true)
"\x7f\u2028😀\x01"|tojson
"\x7f\u2028😀\x01"|tojson(ensure_ascii=true)
{"b": 1, "a": [1, {}], "c": []}|tojson(indent=2)
{"b": 1, "a": 2}|tojson(sort_keys=true)
{"b": 1, "a": 2}|tojson(separators=(",", ":"))
{1: 1, none: 2, true: 3, 1.5: 4}|tojson
(1, 2)|tojson|safe
"<b>"|safe ~ "<i>"
[1, 2]|tojson(indent="\t")
range(5)|list
range(2, 8, 3)|list
range(5, 0, -2)|list
dict(a=1, b=2)
dict([("a", 1)])
strftime_now("%d %b %Y, %A %H:%M %j")
strftime_now("%Y-%m-%d %-d %B %I %p")
"a" "b" 'c'
"\x41\u00e9\n\q\101"|tojson
[[1, 2], [3]]|map("join", "+")|list
["x"] + ["y"]
(1,) + (2,)
"abc".upper().lower()[0:2]
[1, [2, [3]]] == [1, [2, [3]]]
{"a": 1} == {"a": 1.0}
-"a"|length if false else -1
+5
[1,2,3].index(2)
[1,1,2].count(1)
1.0.__class__
"".__class__
{}.__class__.__mro__ is undefined
messages.__init__ is undefined
[].append(1)
none.x is undefined
none[1:]
nothing.x
nothing["x"]
nothing + 1
1 + "a"
"a" + 1
"a" < 1
"a" in 5
[1,2]|first.x
{"a": 1}|tojson|length
nothing|tojson
range(1000000)
raise_exception("told " ~ 5)
1 / 0
1 % 0
"abc".index("x")
"abc".split("")
5|join
5|length
"%d" % "a"
"%s %s" % "a"
{}[[]] is undefined
{[]: 1}
namespace(a=1).a
namespace(a=1).b is undefined
"😀😀"|center(6)
{"a": none}.a
{"a": none}["a"] is none
{"a": none}.get("a", 5)
[none][0]
[none]|first
[none, none]|last
{"get": none}["get"]
"x"|int(none)
(none,)|map("default", 3)|list
1e300
-0.0
1e16|int
1.5e10
messages|length
messages[1].content.split("e", 1)
{"a": 1}.items()|map("first")|list
"a\\n"
"a😀".rjust(4, "😀")
"😀x😀".strip("😀")
`;

/** Whole templates. */
const STATEMENTS = [
  "{% for a in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
  "{% for a in [1, 2, 3] %}{{ loop.previtem }}<{{ a }}>{{ loop.nextitem }}{{ loop.cycle('x', 'y') }}{{ loop.depth }}{% endfor %}",
  "{% for a in [1, 1, 2] %}{{ loop.changed(a) }}{% endfor %}",
  "{% for a in [] %}x{% else %}none{% endfor %}",
  "{% for a in [1, 2, 3, 4] if a % 2 == 0 %}{{ a }}/{{ loop.length }}{% endfor %}",
  "{% for a in [1, 2, 3, 4] %}{% if a == 2 %}{% continue %}{% endif %}{% if a == 4 %}{% break %}{% endif %}{{ a }}{% endfor %}",
  "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}",
  "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
  "{% for a in [1, [2, [3]]] recursive %}{% if a is number %}{{ a }}:{{ loop.depth0 }}{% else %}({{ loop(a) }}){% endif %}{% endfor %}",
  "{% set x = 1 %}{% for a in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}",
  "{% set ns = namespace(n=0) %}{% for a in [1, 2] %}{% set ns.n = ns.n + a %}{% endfor %}{{ ns.n }}",
  "{% if false %}a{% elif 0 %}b{% elif 'x' %}c{% else %}d{% endif %}",
  "{% if true %}{% set y = 2 %}{% endif %}{{ y }}",
  "{% set a, b = 1, 'x' %}{{ a }}{{ b }}",
  "{% set t %} inner {{ 1 }} {% endset %}[{{ t }}]",
  "{% set t | upper | trim %} inner {% endset %}[{{ t }}]",
  "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m() }}",
  "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
  "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(none, none) }}",
  "{% set n = none %}{% for x in [1] %}{{ n }}{% set n = 2 %}{% endfor %}",
  "{% for x in [none, 1] %}{{ loop.nextitem }}{{ loop.previtem }}{% endfor %}",
  "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
  "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
  "{% macro m(n) %}{% if n > 0 %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
  "{% macro m() %}[{{ caller(1) }}]{% endmacro %}{% call(x) m() %}in{{ x }}{% endcall %}",
  "{% set g = 1 %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ m() }}",
  "{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
  "{% filter upper %}a{{ 'b' }}{% endfilter %}",
  "{% filter replace('a', 'b') | upper %}aca{% endfilter %}",
  "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
  "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}",
  "{% raw %}{{ x }}{% endraw %}{% raw -%}  y  {%- endraw %}z",
  "a {# comment {{ x }} #} b {#- c -#} d",
  "  {% if true %}\n  x\n  {% endif %}\ny\n",
  "  {%+ if true %}\n  x\n  {%+ endif +%}\ny\n\n",
  "a\n  {{ 1 }}  \n  {{- 2 -}}  \n b",
  "a  {% if true %}  b  {% endif %}  c",
  "{% for a in [1, 2] %}\n    {{ a }}\n{% endfor %}\n",
  "{% for a in [1, 2] -%}\n    {{ a }}\n{%- endfor %}\n",
  "x\r\ny\r{{ 'a\r\nb' }}\n",
  "\n\n{% set x = 1 %}\n\n{{ x }}\n\n",
  "{{ {'a': {'b': {}}} }}}}",
  "{{ '}}' }}{{ '%}' }}{{ \"{% if %}\" }}",
  "{% print 1, 2 %}",
  "{% generation %}a{% set q = 1 %}{% endgeneration %}{{ q is defined }}",
  "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}",
  "{% set j = joiner('|') %}{{ j() }}a{{ j() }}b",
  "{% for a in [1,2] %}{% for b in [1,2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
  "{% set d = {'a': 1} %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'xy' %}{{ c }}{% endfor %}",
  "{% set m = messages %}{% for a in m %}{{ a.role }}{{ a['content'] }}{{ a.x is defined }}{% endfor %}",
  "{{ tools is none }}{{ documents is defined }}{{ add_generation_prompt }}",
  "{% set f = [1, 2] | map('string') %}{{ f | list }}{{ f | list }}",
  "{% set range = 3 %}{{ range }}",
  "{{ loop is defined }}{% for a in [1] %}{{ loop is defined }}{% endfor %}",
  "{% set x = 'a' %}{% set x = x ~ 'b' %}{{ x }}",
  "{{ 'a' ~ 1 + 2 }}",
  "{{ 1 + 2 * 3 ** 2 - 4 // 3 % 2 }}",
  "{{ 'a' if false else 'b' if false else 'c' }}",
  "{{ [1, 2,] }}{{ {'a': 1,} }}{{ (1,) }}",
  "{{ range(3) | list | length == 3 and not false }}",
  "{{ -1 | abs }}{{ 'a' 'b' | upper }}",
  "{{ messages[0].content.split() | map('capitalize') | join(' ') }}",
  "{{ messages | map(attribute='role') | join }}{{ messages | selectattr('role', 'eq', 'user') | list | length }}",
  "{% do [].append(1) %}",
  "{% include 'x' %}",
  "{% block a %}x{% endblock %}",
  "{% extends 'x' %}",
  "{% for a in 5 %}{% endfor %}",
  "{% set a, b = [1] %}",
  "{% set a.b = 1 %}",
  "{% break %}",
  "{% if %}{% endif %}",
  "{% for a in [1] %}",
  "{{ 1",
  "{# x",
  "{{ ) }}",
  "{{ a b }}",
  "{{ 'a }}",
  "{{ x | nosuchfilter }}",
  "{{ x is nosuchtest }}",
  "{% nosuchtag %}",
  "{% endfor %}",
];

export const TEMPLATES = [
  ...NONE.split("; ").map((one) => `{{ ${one} }}`),
  ...lines(VALUES).map((one) => `{{ ${one} }}`),
  ...STATEMENTS,
];
