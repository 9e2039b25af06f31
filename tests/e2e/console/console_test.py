# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""The web console in a real Chromium, against the real server. Run by run.py.

Screenshots are left in build/<preset>/console_screenshots, to be looked at.
"""

import hashlib
import json
import pathlib
import statistics
import tempfile
import threading
import unittest

import chromium
from server import TALES, Server, make_chat, make_log_linear
from support.rivulet_server import BINARIES  # noqa: E402

SCREENSHOTS = BINARIES.parent / "console_screenshots"
PROMPT = "Once upon a time"
READY = "document.activeElement.id === 'input'"  # the last thing that the page does at its start
AT_REST = "!document.querySelector('.running') && document.querySelector('#stop').hidden && document.querySelector('#thread').ariaBusy !== 'true'"

# Every element with text of its own that is seen, with its contrast against what is behind it.
CONTRASTS = """(() => {
  const parse = (color) => (color.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((v) => (v /= 255, v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = parse(getComputedStyle(e).backgroundColor);
      if ((color[3] ?? 1) === 1) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const e of document.querySelectorAll('body *')) {
    const text = [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.textContent.trim()).join('');
    if (!text || e.disabled || !e.checkVisibility({visibilityProperty: true})) continue;
    const style = getComputedStyle(e), svg = e.namespaceURI.endsWith('svg');
    const a = luminance(parse(svg ? style.fill : style.color)), b = luminance(behind(e));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) low.push(`${e.tagName}.${e.getAttribute('class')} "${text.slice(0, 20)}": ${contrast.toFixed(2)}`);
  }
  return low;
})()"""


class ConsoleTest(unittest.TestCase):
    """The bundled model, which has no chat template."""

    @classmethod
    def start(cls, model, *flags):
        cls.server = Server(model, *flags)
        cls.browser = chromium.Chromium(chromium.find())
        SCREENSHOTS.mkdir(exist_ok=True)

    @classmethod
    def setUpClass(cls):
        cls.start(TALES, "--speculate=lookup")

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        assert cls.server.stop() == 0

    def setUp(self):
        for session in self.sessions():
            self.server.call("DELETE", f"/v1/sessions/{session['id']}")

    def tearDown(self):
        self.assertEqual([text for text in self.browser.complaints() if not self.expected(text)], [])
        for url in self.browser.requests():
            self.assertTrue(url.startswith((self.server.url, "data:")), url)

    def expected(self, text):
        return False

    # ---- Steps.

    def open(self, **how):
        self.browser.open(self.server.url, **how)
        self.browser.wait(READY)

    def set(self, **settings):
        for name, value in settings.items():
            self.browser.run(f"""(() => {{ const field = document.querySelector('#set-{name}'); field.value = {json.dumps(value)};
                                 field.dispatchEvent(new Event('input', {{bubbles: true}})); }})()""")

    def say(self, text):
        """One whole turn."""
        turns = self.turns()
        self.begin(text)
        self.browser.wait(f"document.querySelectorAll('.turn').length === {turns + 1} && {AT_REST}")

    def begin(self, text):
        self.browser.run("document.querySelector('#input').focus()")
        self.browser.type(text)
        self.browser.press("Enter")

    def stream_long(self):
        """A turn that goes on until it is stopped; returns once tokens have come."""
        self.set(max_tokens="100000", temperature="1.2")
        self.begin(PROMPT)
        self.browser.wait("document.querySelectorAll('.answer .t').length > 3")

    def turns(self):
        return self.browser.run("document.querySelectorAll('.turn').length")

    def text(self, selector):
        return self.browser.run(f"document.querySelector({json.dumps(selector)}).textContent")

    def sessions(self):
        return self.server.call("GET", "/v1/sessions")["sessions"]

    def session(self):
        """The only one."""
        (session,) = self.sessions()
        return session

    def expect_tokens(self, tokens):
        """Shows so many with the next frame."""
        self.browser.wait(f"document.querySelector('.figure dd').textContent.replaceAll(',', '').startsWith('{tokens} ')")

    def shown_tokens(self):
        return int(self.text(".figure dd").split()[0].replace(",", ""))

    def screenshot(self, name):
        self.browser.screenshot(SCREENSHOTS / f"{name}.png")


class PageTest(ConsoleTest):
    def test_loads_fast_and_whole(self):
        times = []
        for _ in range(5):
            self.open()
            times.append(self.browser.run("performance.getEntriesByName('rivulet-ready')[0].startTime"))
        print(f"console ready after {statistics.median(times):.0f} ms (median of 5: {', '.join(f'{t:.0f}' for t in sorted(times))})")
        self.assertLess(statistics.median(times), 10_000)
        self.assertEqual(self.text("title"), "Rivulet")
        self.assertIn("tales", self.text("#model"))
        self.browser.navigate(self.server.url)
        self.browser.wait(READY)
        sizes = self.browser.run("performance.getEntriesByType('resource').filter((r) => r.name.includes('/console/')).map((r) => r.transferSize)")
        self.assertGreater(len(sizes), 10)
        self.assertLess(max(sizes), 1000, "a reload sends nothing again")

    def test_a_turn_streams_and_explains_its_tokens(self):
        self.open()
        self.set(max_tokens="100", seed="1")
        # How many tokens were to be seen while the turn ran.
        self.browser.run("""(() => { window.seen = new Set(); new MutationObserver(() => {
            if (document.querySelector('.running')) window.seen.add(document.querySelectorAll('.answer .t').length);
          }).observe(document.querySelector('#thread'), {childList: true, subtree: true}); })()""")
        self.say(PROMPT)
        self.assertGreater(self.browser.run("window.seen.size"), 2)
        session = self.session()
        self.expect_tokens(int(session["position"]))
        self.assertEqual(session["name"], PROMPT)
        size = self.text(".figure:nth-child(2) dd")
        self.browser.hover(".answer .t:nth-child(5)")
        self.browser.wait("!document.querySelector('#popover').hidden")
        popover = self.browser.run("[...document.querySelectorAll('#popover tr')].map((row) => row.textContent)")
        self.assertGreaterEqual(len(popover), 5)
        self.assertTrue(all(row.endswith("%") for row in popover), popover)
        self.assertIn("✓", "".join(popover))
        self.screenshot("light")
        # The tokens' texts are the answer, as the API gives it.
        answer = self.text(".answer")
        whole = self.server.call("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 100, "seed": 1})
        self.assertEqual(answer, whole["choices"][0]["text"])
        self.say("The king")
        self.assertGreater(self.shown_tokens(), int(session["position"]))
        self.assertEqual(self.text(".figure:nth-child(2) dd"), size, "the state does not grow")
        self.browser.wait("document.querySelectorAll('.sizes .measured').length === 2")

    def test_forks_rewinds_and_retries(self):
        self.open()
        self.set(max_tokens="12")
        self.say(PROMPT)
        first = int(self.session()["position"])
        self.say("The king")
        second = int(self.session()["position"])
        self.browser.click(".turn:first-of-type .turn-actions button:nth-last-child(2)")  # Fork here
        self.browser.wait(f"document.querySelectorAll('#tree li').length === 2 && {AT_REST}")
        self.assertEqual(self.browser.run("document.querySelector('#tree [aria-selected=\"true\"]').getAttribute('aria-level')"), "2")
        self.assertEqual(self.turns(), 1)
        fork = next(session for session in self.sessions() if session["forked_from"])
        self.assertEqual(int(fork["position"]), first)
        self.say("The queen")
        self.screenshot("tree")
        # Back in the first session, which is as it was.
        self.browser.click("#tree li:first-child")
        self.browser.wait(f"document.querySelector('#tree li:first-child').ariaSelected === 'true' && {AT_REST}")
        self.assertEqual(self.turns(), 2)
        self.expect_tokens(second)
        before = self.text(".turn:last-of-type .answer")
        self.set(seed="99")
        self.browser.click(".turn:last-of-type .turn-actions button")  # Retry
        self.browser.wait(f"document.querySelectorAll('.turn').length === 2 && {AT_REST} && document.querySelector('.turn:last-of-type .answer').textContent !== {json.dumps(before)}")
        again = next(session for session in self.sessions() if not session["forked_from"])
        self.assertEqual([int(at) for at in again["kept_positions"]], [0, first])
        self.browser.click(".turn:last-of-type .turn-actions button:last-child")  # Rewind
        self.browser.wait(f"document.querySelectorAll('.turn').length === 1 && {AT_REST}")
        self.expect_tokens(first)

    def test_a_reload_and_another_tab(self):
        self.open()
        self.set(max_tokens="8")
        self.say(PROMPT)
        answer = self.text(".answer")
        self.browser.navigate(self.server.url)
        self.browser.wait(READY)
        self.assertEqual(self.text(".answer"), answer, "this tab remembers the text")
        self.open()  # a tab that does not
        self.browser.click("#tree li")
        self.browser.wait("document.querySelector('.earlier')")
        self.browser.click(".earlier button")
        self.browser.wait("!document.querySelector('.earlier')")
        self.assertEqual(int(self.session()["position"]), 0)

    def test_keys_alone(self):
        self.open()
        press = self.browser.press
        self.stream_long()
        press("Escape")
        self.browser.wait(AT_REST)
        self.assertIn("stopped", self.text(".meta"))
        position = int(self.session()["position"])
        self.assertLess(position, 100_000)
        self.expect_tokens(position)
        self.set(max_tokens="10")
        self.browser.run("document.querySelector('#thread').focus()")
        press("?")
        self.browser.wait("document.querySelector('#help-dialog').open")
        press("Escape")
        self.browser.wait("!document.querySelector('#help-dialog').open")
        press("a")
        press("ArrowRight")
        press("ArrowRight")
        self.assertFalse(self.browser.run("document.querySelector('#popover').hidden"))
        self.assertRegex(self.browser.run("document.querySelector('#said-0').textContent + document.querySelector('#said-1').textContent"), r"%.*2 of \d+")
        press("Escape")
        self.assertTrue(self.browser.run("document.querySelector('#popover').hidden"))
        press("f")
        self.browser.wait(f"document.querySelectorAll('#tree li').length === 2 && {AT_REST} && {READY}")
        self.browser.run("document.querySelector('#thread').focus()")
        press("s")
        self.browser.wait("document.activeElement.closest('#tree')")
        press("ArrowUp")
        press("F2")
        self.browser.wait("document.querySelector('#ask-dialog').open && document.activeElement.id === 'ask-input'")
        self.browser.run("document.activeElement.select()")
        self.browser.type("Renamed")
        press("Enter")
        self.browser.wait("document.querySelector('#tree li').textContent.startsWith('Renamed')")
        press("Delete")
        self.browser.wait("document.querySelector('#ask-dialog').open")
        press("Enter")
        self.browser.wait("document.querySelectorAll('#tree li').length === 1")
        self.browser.run("document.querySelector('#thread').focus()")
        press("u")
        self.browser.wait("document.querySelectorAll('.turn').length === 0 && document.activeElement.id === 'input'")
        self.assertEqual(int(self.session()["position"]), 0)
        self.assertEqual(self.browser.run("document.querySelector('#input').value"), PROMPT)

    def test_focus_goes_everywhere_in_order(self):
        self.open()
        self.set(max_tokens="6")
        self.say(PROMPT)
        self.browser.run("document.querySelector('.skip').focus()")
        seen = ["skip"]
        for _ in range(40):
            self.browser.press("Tab")
            seen.append(self.browser.run("document.activeElement.id || document.activeElement.className || document.activeElement.getAttribute('role')"))
        places = [seen.index(name) for name in ("skip", "theme", "help", "new-session", "treeitem", "fork", "thread", "text answer", "input", "set-temperature", "set-top_logprobs")]
        self.assertEqual(places, sorted(places), seen)
        labels = self.browser.run("""[...document.querySelectorAll('button, input, select, textarea, [role=group], [role=tree], nav, aside')].filter(
            (e) => e.checkVisibility() && !(e.ariaLabel || e.getAttribute('aria-labelledby') || e.labels?.length || e.textContent.trim())).map((e) => e.outerHTML)""")
        self.assertEqual(labels, [])

    def test_a_phone(self):
        self.open(width=390, height=844)
        self.set(max_tokens="80")
        self.say(PROMPT)
        fits = "document.scrollingElement.scrollWidth <= 390 && document.querySelector('#thread').scrollWidth <= 390"
        self.assertTrue(self.browser.run(fits))
        self.screenshot("phone")
        for name in ("sessions", "panel"):
            self.browser.click(f"#open-{name}")
            self.assertTrue(self.browser.run(f"document.querySelector('#{name}').checkVisibility({{visibilityProperty: true}})"))
            self.assertTrue(self.browser.run(fits))
            self.screenshot(f"phone-{name}")
            self.browser.press("Escape")
            self.assertFalse(self.browser.run(f"document.querySelector('#{name}').checkVisibility({{visibilityProperty: true}})"))
        small = self.browser.run("""[...document.querySelectorAll('button')].filter((e) => e.checkVisibility({visibilityProperty: true}))
            .map((e) => [e.textContent, e.offsetHeight]).filter(([, height]) => height < 36)""")
        self.assertEqual(small, [])

    def test_both_themes_have_contrast(self):
        for dark in (False, True):
            self.open(dark=dark)
            self.set(max_tokens="60", seed="3")
            self.say(PROMPT)
            self.browser.press("Escape")
            self.browser.click("#shade")
            self.browser.hover(".answer .t:nth-child(4)")
            self.browser.wait("!document.querySelector('#popover').hidden")
            self.assertEqual(self.browser.run(CONTRASTS), [])
            self.screenshot("dark" if dark else "shaded")
            self.browser.click("#help")
            self.assertEqual(self.browser.run(CONTRASTS), [])
            self.screenshot("help-dark" if dark else "help-light")
        self.browser.run("document.querySelector('#help-dialog').close()")
        color = "getComputedStyle(document.body).backgroundColor"
        by_system = self.browser.run(color)
        self.browser.click("#theme")
        self.assertNotEqual(self.browser.run(color), by_system, "light, though the system is dark")
        self.browser.click("#theme")
        self.assertEqual(self.browser.run(color), by_system)

    def test_text_is_never_markup(self):
        self.open()
        self.set(max_tokens="3")
        self.say("<img src=x onerror=alert(1)> <b>bold</b> \U0001f980")
        self.assertEqual(self.text(".you"), "<img src=x onerror=alert(1)> <b>bold</b> \U0001f980")
        self.assertEqual(self.browser.run("document.querySelectorAll('#thread img, #thread b, #tree img').length"), 0)

    def test_modules(self):
        self.open()
        self.assertEqual(self.browser.run("""(async () => {
          const { SseParser } = await import('/console/sse.js');
          const { Aligner } = await import('/console/tokens.js');
          const { holdsPage } = await import('/console/chart.js');
          const { joinText } = await import('/console/turn.js');
          const failed = [];
          const same = (name, got, want) => { if (JSON.stringify(got) !== JSON.stringify(want)) failed.push([name, got, want]); };

          // Cut at every place, and with every line end.
          for (const end of ['\\n', '\\r\\n', '\\r']) {
            const bytes = new TextEncoder().encode(['data: {"a":"\U0001f980é"}', '', ': note', 'data: x', 'data:y', '', 'event: z', '', 'data: [DONE]', '', ''].join(end));
            for (let cut = 0; cut <= bytes.length; ++cut) {
              const parser = new SseParser();
              const got = [...parser.push(bytes.slice(0, cut)), ...parser.push(bytes.slice(cut)), ...parser.push(new TextEncoder().encode('\\n'))];
              same(`sse ${end.length} ${cut}`, got, ['{"a":"\U0001f980é"}', 'x\\ny', '[DONE]']);
            }
            const parser = new SseParser();
            same('sse bytes', [...bytes, 10].flatMap((byte) => parser.push(new Uint8Array([byte]))), ['{"a":"\U0001f980é"}', 'x\\ny', '[DONE]']);
          }

          // A character of two tokens, a mark that is no text, a text that was held back.
          const chat = (text, thinking, tokens) => ({ delta: { content: text, reasoning_content: thinking }, token_ids: tokens.map((_, i) => i),
            logprobs: { content: tokens.map((bytes) => ({ token: '?', bytes, logprob: -1, top_logprobs: [] })) } });
          const ascii = (text) => [...text].map((c) => c.charCodeAt(0));
          const shape = (pieces) => pieces.map((piece) => [piece.kind, piece.text, piece.tokens.length]);
          let aligner = new Aligner();
          same('split', shape([...aligner.push(chat('', '', [[0xf0, 0x9f]])), ...aligner.push(chat('\U0001f980', '', [[0xa6, 0x80]]))]), [['answer', '\U0001f980', 2]]);
          aligner = new Aligner();
          same('marks', shape(aligner.push(chat('Hi', 'so', [ascii('so'), ascii('</think>'), ascii('Hi')]))), [['thinking', 'so', 1], ['answer', 'Hi', 2]]);
          aligner = new Aligner();
          same('held', shape([...aligner.push(chat('', '', [ascii('a')])), ...aligner.push(chat('ab', '', [ascii('b')]))]), [['answer', 'a', 1], ['answer', 'b', 1]]);
          same('no tokens', shape(new Aligner().push({ text: 'plain' })), [['answer', 'plain', 0]]);

          for (let n = 0; n < 70; ++n) {
            const bits = [0, 1, 2, 3].map((level) => holdsPage(n, level, 4));
            same(`pages ${n}`, bits, [n & 1, n & 2, n & 4, n >> 3].map(Boolean));
          }
          same('join', [joinText('', 'a'), joinText('a', 'b'), joinText('a ', 'b'), joinText('a', ', b'), joinText('a', '')], ['a', ' b', 'b', ', b', '']);
          return failed;
        })()"""), [])


class FaultTest(ConsoleTest):
    def expected(self, text):
        return "Failed to load resource" in text or "net::ERR" in text  # the browser's own words

    def test_a_refusal_is_shown_in_the_servers_words(self):
        self.open()
        self.set(temperature="1", max_tokens="5")
        self.browser.run("document.querySelector('#set-top_logprobs').removeAttribute('max')")
        self.set(top_logprobs="21")
        self.begin(PROMPT)
        self.browser.wait("document.querySelector('.problem')?.checkVisibility()")
        self.assertIn("logprobs", self.text(".problem"))
        self.set(top_logprobs="3")
        self.browser.click(".problem button")
        self.browser.wait(f"document.querySelectorAll('.answer .t').length > 0 && {AT_REST}")
        self.assertEqual(self.turns(), 1)

    def test_a_server_that_ends_and_comes_back(self):
        self.open()
        self.stream_long()
        self.server.kill()
        self.browser.wait("document.querySelector('.problem')?.checkVisibility()")
        self.assertIn("connection was lost", self.text(".problem"))
        self.browser.wait("document.querySelector('#connection').textContent.includes('cannot be reached')")
        self.screenshot("lost")
        type(self).server = Server(TALES, http_port=self.server.port)
        self.browser.wait("document.querySelector('#connection').textContent.includes('session is gone') && document.querySelector('#title').textContent === 'New session'")
        self.set(max_tokens="5")
        self.say(PROMPT)
        self.assertEqual(len(self.sessions()), 1)

    def test_a_session_that_was_deleted_elsewhere(self):
        self.open()
        self.set(max_tokens="5")
        self.say(PROMPT)
        self.server.call("DELETE", f"/v1/sessions/{self.session()['id']}")
        self.begin("The king")
        self.browser.wait("document.querySelector('#title').textContent === 'New session'")
        self.assertEqual(self.browser.run("document.querySelector('#input').value"), "The king")
        self.assertIn("was deleted", self.text("#connection"))

    def test_a_busy_session_is_asked_again(self):
        self.open()
        self.set(max_tokens="5")
        self.say(PROMPT)
        path = f"/v1/sessions/{self.session()['id']}"
        turn = threading.Thread(target=self.server.call, args=("POST", "/v1/completions", {"prompt": "The king", "max_tokens": 60, "ignore_eos": True},
                                                               {"x-session-id": self.session()["id"]}))
        turn.start()
        while not self.server.call("GET", path)["busy"] and turn.is_alive():
            pass
        self.browser.click("#fork")
        self.browser.wait(f"document.querySelectorAll('#tree li').length === 2 && {AT_REST}")
        turn.join()


class TokenTest(ConsoleTest):
    """A server that asks for a token."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        file = pathlib.Path(cls.folder.name) / "tokens.json"
        file.write_text(json.dumps({"tenants": [{"name": "t"}], "tokens": [{"name": "n", "tenant": "t", "sha256": hashlib.sha256(b"right").hexdigest()}]}))
        cls.start(TALES, f"--tokens={file}")

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def setUp(self):
        pass  # no sessions yet, and no token to ask for them

    def expected(self, text):
        return "401" in text  # the browser's own words

    def test_a_token_is_asked_for_and_kept_by_the_tab(self):
        self.browser.open(self.server.url)
        asks = "document.querySelector('#ask-dialog').open && document.activeElement.id === 'ask-input' && document.activeElement.value === ''"
        for token in ("wrong", "right"):
            self.browser.wait(asks)
            self.assertEqual(self.browser.run("document.querySelector('#ask-input').type"), "password")
            self.browser.type(token)
            self.browser.press("Enter")
        self.browser.wait(READY)
        self.assertIn("tales", self.text("#model"))
        self.set(max_tokens="5")
        self.say(PROMPT)
        self.assertEqual(self.turns(), 1)
        self.assertEqual(self.browser.run("[sessionStorage.getItem('rivulet.token'), localStorage.length, document.cookie]"), ["right", 0, ""])
        self.browser.navigate(self.server.url)
        self.browser.wait(READY)
        self.browser.open(self.server.url)  # another tab
        self.browser.wait(asks)
        self.browser.press("Escape")
        self.browser.wait("document.querySelector('#connection').textContent.includes('oken')")
        self.begin(PROMPT)  # is what asks again
        self.browser.wait(asks)
        self.browser.type("right")
        self.browser.press("Enter")
        self.browser.wait("document.querySelector('#model').textContent")
        self.assertEqual(self.browser.run("document.querySelector('#input').value"), PROMPT)


class ChatTest(ConsoleTest):
    """A model with a chat template, which thinks."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.start(make_chat(pathlib.Path(cls.folder.name) / "chat"))

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def test_thinking_is_apart(self):
        self.open()
        self.set(system="Be short.")
        self.say("Who are you?")
        self.assertEqual(self.text(".thought"), "a")
        self.assertEqual(self.text(".answer"), "b")
        self.assertFalse(self.browser.run("document.querySelector('.thinking').open"))
        self.browser.click(".thinking summary")
        self.browser.click(".answer .t")
        self.browser.wait("!document.querySelector('#popover').hidden")
        self.assertIn("b", self.text("#popover .head"))
        self.screenshot("chat")
        # The template takes the thinking out of earlier turns, so the second turn begins anew with the first in its prompt.
        self.say("And now?")
        whole = int(self.session()["position"])
        self.assertEqual(self.session()["kept_positions"], ["0"])
        self.browser.click(".turn:last-of-type .turn-actions button:last-child")  # Rewind
        self.browser.wait(f"document.querySelectorAll('.turn').length === 1 && {AT_REST}")
        self.assertEqual(int(self.session()["position"]), 0)
        self.say("And now?")
        self.assertEqual(self.text(".turn:last-of-type .answer"), "b")
        self.assertEqual(int(self.session()["position"]), whole, "what was said before was sent again")


class LogLinearTest(ConsoleTest):
    """A log-linear model: pages are a binary counter."""

    @classmethod
    def setUpClass(cls):
        tales = Server(TALES)
        said = tales.call("POST", "/v1/completions", {"prompt": PROMPT, "max_tokens": 400, "seed": 5, "return_token_ids": True})["choices"][0]["token_ids"]
        assert tales.stop() == 0
        cls.folder = tempfile.TemporaryDirectory()
        cls.start(make_log_linear(pathlib.Path(cls.folder.name) / "log-linear", list(dict.fromkeys(said))))

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def test_pages_count_in_binary(self):
        self.open()
        for i, tokens in enumerate((40, 1, 3, 600)):
            self.set(max_tokens=str(tokens))
            self.say("Once" if i == 0 else "And")
            session = self.session()
            # The last sampled token is not in the state yet.
            chunks = (int(session["position"]) - 1) // 16
            self.assertEqual(int(session["pages"]), bin(chunks).count("1"))
            self.expect_tokens(int(session["position"]))
            shown = self.browser.run("[...document.querySelectorAll('.levels .digit')].reverse().map((digit) => digit.textContent).join('')")
            self.assertEqual(int(shown, 2), self.shown_tokens() // 16)
            lit = self.browser.run("document.querySelectorAll('.levels .on').length")
            self.assertEqual(lit, bin(self.shown_tokens() // 16).count("1"))
        self.screenshot("pages")
        self.browser.resize(390, 844)
        self.browser.click("#open-panel")
        self.screenshot("phone-pages")
        self.assertTrue(self.browser.run("document.scrollingElement.scrollWidth <= 390"))



if __name__ == "__main__":
    unittest.main(verbosity=2)
