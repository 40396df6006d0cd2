#include "convnet/config/schedule.h"

#include <cmath>
#include <stdexcept>
#include "tests/catch.h"

using namespace convnet;

namespace {
std::string mistake(const char* text) {
  try {
    Schedule::parse(text);
  } catch (const std::invalid_argument& wrong) {
    return wrong.what();
  }
  return "";
}
}  // namespace

TEST_CASE("constant schedules", "[schedule]") {
  for (const char* text : {"0.01", " 1e-2 ", "+0.01", "const[base=0.01]", "const[ base = 1e-2 ; ]"}) {
    CAPTURE(text);
    const Schedule s = Schedule::parse(text);
    CHECK(s.at(0) == 0.01);
    CHECK(s.at(1) == 0.01);
    CHECK(s.base() == 0.01);
    CHECK(s.str() == "0.01");
    CHECK_FALSE(s.frozen());
  }
  CHECK(Schedule::parse("0").frozen());
  CHECK(Schedule::parse("const[base=0.0]").frozen());
  CHECK(Schedule().frozen());
  CHECK(Schedule(0.5).at(0.3) == 0.5);
}

TEST_CASE("names and arguments of schedules in any case", "[schedule]") {
  const Schedule dexp = Schedule::parse("dexp[base=0.1;tgtFactor=8;numSteps=4]");
  for (const char* text : {"DEXP[base=0.1;tgtFactor=8;numSteps=4]", "dExp[Base=0.1;tgtfactor=8;NUMSTEPS=4]",
                           "dexp[BASE=0.1; TGTFACTOR = 8; numsteps=4]"})
    CHECK(Schedule::parse(text).str() == dexp.str());
  CHECK(Schedule::parse("Exp[base=1;tgtfactor=2]").str() == "exp[base=1;tgtFactor=2]");
  CHECK(Schedule::parse("CONST[BASE=3]").str() == "3");
  CHECK(mistake("Exp[base=1;BASE=2;tgtFactor=2]") == "exp: 'base' is given twice");
}

TEST_CASE("linear goes straight from base to base/tgtFactor", "[schedule]") {
  const Schedule s = Schedule::parse("linear[base=0.8;tgtFactor=4]");
  CHECK(s.at(0) == Approx(0.8));
  CHECK(s.at(0.25) == Approx(0.8 * 0.75 + 0.2 * 0.25));
  CHECK(s.at(1) == Approx(0.2));
}

TEST_CASE("exp falls by tgtFactor over the run", "[schedule]") {
  const Schedule s = Schedule::parse("exp[tgtFactor=100;base=0.5]");
  CHECK(s.at(0) == Approx(0.5));
  CHECK(s.at(0.5) == Approx(0.05));
  CHECK(s.at(1) == Approx(0.005));
}

TEST_CASE("dexp falls in numSteps steps", "[schedule]") {
  const Schedule s = Schedule::parse("dexp[base=0.01;tgtFactor=250;numSteps=4]");
  const double step = std::pow(250, -1.0 / 3);
  CHECK(s.at(0) == Approx(0.01));
  CHECK(s.at(0.25) == Approx(0.01));  // a step ends with its bound
  CHECK(s.at(0.2500001) == Approx(0.01 * step));
  CHECK(s.at(0.5) == Approx(0.01 * step));
  CHECK(s.at(0.75) == Approx(0.01 * step * step));
  CHECK(s.at(0.7500001) == Approx(0.01 / 250));
  CHECK(s.at(1) == 0.01 / 250);
}

TEST_CASE("dexp finds the step as the defining comparison does", "[schedule]") {
  for (int steps = 2; steps <= 50; ++steps) {
    const Schedule s = Schedule::parse("dexp[base=1;tgtFactor=2;numSteps=" + std::to_string(steps) + "]");
    for (int k = 0; k <= 700; ++k) {
      const double p = k / 700.0;
      int i = 0;
      while (i < steps - 1 && p > (i + 1.0) / steps) ++i;
      const double expected = i == steps - 1 ? 0.5 : std::pow(2.0, -static_cast<double>(i) / (steps - 1));
      if (s.at(p) != expected) FAIL("numSteps=" << steps << " p=" << p);
    }
  }
  SUCCEED();
}

TEST_CASE("a single step is the last one, as in cuda-convnet2", "[schedule]") {
  const Schedule s = Schedule::parse("dexp[base=0.1;tgtFactor=10;numSteps=1]");
  CHECK(s.at(0) == 0.01);
  CHECK(s.at(1) == 0.01);
}

TEST_CASE("rates stay numbers of fp32 over the whole run", "[schedule]") {
  const std::string larger = ", is larger than fp32 holds, 3.4e+38";
  CHECK(mistake("exp[base=1e-3;tgtFactor=1e-200]") == "exp: the last rate, base/tgtFactor" + larger);
  CHECK(mistake("linear[base=1;tgtFactor=1e-39]") == "linear: the last rate, base/tgtFactor" + larger);
  CHECK(mistake("dexp[base=1;tgtFactor=1e-39;numSteps=3]") == "dexp: the last rate, base/tgtFactor" + larger);
  CHECK(mistake("cosine[base=1;tgtFactor=1e-39]") == "cosine: the last rate, base/tgtFactor" + larger);
  CHECK(mistake("poly[base=1;tgtFactor=1e-39;power=2]") == "poly: the last rate, base/tgtFactor" + larger);
  CHECK(mistake("step[base=0.1;at=1,2;factor=1e20]") == "step: the last rate, base*factor^2" + larger);
  CHECK(mistake("step[base=0.1;at=1,2;factor=1e300]") == "step: the last rate, base*factor^2" + larger);
  // Whatever is accepted stays one from the first batch to the last.
  for (const char* text :
       {"linear[base=1e-3;tgtFactor=1e-41]", "exp[base=1e-3;tgtFactor=1e-41]", "exp[base=1;tgtFactor=1e300]",
        "dexp[base=1e-3;tgtFactor=1e-41;numSteps=7]", "cosine[base=1e-3;tgtFactor=1e-41]",
        "cosine[base=3e38]", "poly[base=1;power=1e-300]",
        "poly[base=1e-3;power=3;tgtFactor=1e-41;warmup=1e300]", "step[base=1e-3;at=0.3,0.6;factor=1e20]",
        "step[base=1;at=0.5;factor=1e-300;warmup=1e-300]"}) {
    CAPTURE(text);
    REQUIRE(mistake(text).empty());
    const Schedule s = Schedule::parse(text);
    for (int i = 0; i <= 1000; ++i)
      CHECK(std::isfinite(static_cast<float>(s.at(TrainingProgress::after(i, 1000, 1)))));
  }
}

TEST_CASE("progress outside [0,1] is clamped", "[schedule]") {
  const Schedule s = Schedule::parse("linear[base=1;tgtFactor=2]");
  CHECK(s.at(-1) == 1);
  CHECK(s.at(3) == 0.5);
}

TEST_CASE("schedules print canonically and read back", "[schedule]") {
  CHECK(Schedule::parse("dexp[numSteps=3; tgtFactor=1e1 ;base=.1]").str() ==
        "dexp[base=0.1;tgtFactor=10;numSteps=3]");
  CHECK(Schedule::parse("linear[base=1;tgtFactor=2]").str() == "linear[base=1;tgtFactor=2]");
  CHECK(Schedule::parse("exp[base=1;tgtFactor=2]").str() == "exp[base=1;tgtFactor=2]");
  const Schedule s = Schedule::parse("exp[base=0.3;tgtFactor=7]");
  CHECK(Schedule::parse(s.str()).at(0.3) == s.at(0.3));
}

TEST_CASE("schedules are described as they are parsed", "[schedule]") {
  for (const ScheduleForm& form : schedule_forms()) {
    CAPTURE(form.name);
    CHECK(mistake(form.usage().c_str()).find("expects") != std::string::npos);  // its values are letters
    std::string all = form.name + "[";
    for (const std::string& name : form.arguments()) {
      const ScheduleArgument& argument = schedule_argument(name);
      CHECK_FALSE(argument.doc.empty());
      const bool is_letter = argument.value.size() == 1;
      all += name + "=" + (is_letter ? "2" : argument.value) + ";";
    }
    CHECK(mistake((all + "]").c_str()).empty());
    CHECK_FALSE(form.rate.empty());
  }
  for (const ScheduleArgument& argument : schedule_arguments())
    CHECK(schedule_argument(argument.name).doc == argument.doc);
}

TEST_CASE("a schedule that a comment cuts short is said to be cut", "[schedule]") {
  // A comment has cut "exp[base=0.01 ; tgtFactor=10]".
  CHECK(
      mistake("exp[base=0.01") ==
      "exp is written exp[base=...;tgtFactor=...], not 'exp[base=0.01', which lacks a ']'; in a file, a ';' "
      "after a blank begins a comment");
  CHECK(mistake("exp[base=0.01]x") == "exp is written exp[base=...;tgtFactor=...], not 'exp[base=0.01]x'");
}

TEST_CASE("mistakes in schedules are named", "[schedule]") {
  const std::string known =
      "is neither a number nor one of the schedules const, linear, exp, dexp, cosine, poly, step, written "
      "like cosine[base=0.1;warmup=5], with ';' between arguments (convnet help schedule)";
  CHECK(mistake("") == "'' " + known);
  CHECK(mistake("nan") == "'nan' " + known);
  CHECK(mistake("inf") == "'inf' " + known);
  CHECK(mistake("0x10") == "'0x10' " + known);
  CHECK(mistake("1e999") == "'1e999' " + known);
  CHECK(mistake("0.01 0.02") == "'0.01 0.02' " + known);
  CHECK(mistake("dex[base=1]") == "'dex[base=1]' " + known + "; did you mean 'dexp'?");
  CHECK(mistake("Linaer[base=1;tgtFactor=2]") ==
        "'Linaer[base=1;tgtFactor=2]' " + known + "; did you mean 'linear'?");
  CHECK(mistake("x") == "'x' " + known);
  CHECK(mistake("const") == "const is written const[base=...], not 'const'");
  CHECK(
      mistake("dexp[base=1") ==
      "dexp is written dexp[base=...;tgtFactor=...;numSteps=...], not 'dexp[base=1', which lacks a ']'; in a "
      "file, a ';' after a blank begins a comment");
  CHECK(mistake("dexp[base=1;tgtFactor=2]") ==
        "dexp needs numSteps, as in dexp[base=...;tgtFactor=...;numSteps=...]");
  CHECK(mistake("linear[base=1]") == "linear needs tgtFactor, as in linear[base=...;tgtFactor=...]");
  CHECK(mistake("exp[]") == "exp needs base, as in exp[base=...;tgtFactor=...]");
  CHECK(mistake("exp[base=1;tgtFactr=2]") ==
        "exp has no argument 'tgtFactr', it takes base, tgtFactor; did you mean 'tgtFactor'?");
  CHECK(mistake("const[base=1;numSteps=2]") == "const has no argument 'numSteps', it takes base");
  CHECK(mistake("const[base]") == "const: 'base' has no value");
  CHECK(mistake("const[base=1;base=2]") == "const: 'base' is given twice");
  CHECK(mistake("const[base=one]") == "const: base expects a number, not 'one'");
  CHECK(mistake("const[base=]") == "const: base expects a number, not ''");
  CHECK(mistake("exp[base=1;tgtFactor=0]") == "exp: tgtFactor expects a number above 0, not '0'");
  CHECK(mistake("exp[base=1;tgtFactor=-2]") == "exp: tgtFactor expects a number above 0, not '-2'");
  CHECK(mistake("exp[base=1;tgtFactor=x]") == "exp: tgtFactor expects a number, not 'x'");
  CHECK(mistake("exp[base=0;tgtFactor=1e-320]").starts_with("exp: tgtFactor expects a number"));
  CHECK(mistake("dexp[base=1;tgtFactor=2;numSteps=0]") ==
        "dexp: numSteps expects an integer of at least 1, not '0'");
  CHECK(mistake("dexp[base=1;tgtFactor=2;numSteps=2.5]") ==
        "dexp: numSteps expects an integer of at least 1, not '2.5'");
}

TEST_CASE("cosine and poly fall to zero or to a part", "[schedule]") {
  const Schedule cosine = Schedule::parse("cosine[base=0.4]"),
                 part = Schedule::parse("cosine[base=0.4;tgtFactor=4]");
  CHECK(cosine.at(0) == 0.4);
  CHECK(cosine.at(0.5) == Approx(0.2));
  CHECK(cosine.at(0.25) == Approx(0.2 * (1 + std::sqrt(0.5))));
  CHECK(cosine.at(1) == Approx(0).margin(1e-15));
  CHECK(part.at(1) == Approx(0.1));
  CHECK(part.at(0.5) == Approx(0.25));
  const Schedule poly = Schedule::parse("poly[base=0.8;power=2]"), line = Schedule::parse("poly[base=0.8]");
  CHECK(poly.at(0.5) == Approx(0.2));
  CHECK(line.at(0.25) == Approx(0.6));
  CHECK(Schedule::parse("poly[base=0.8;power=2;tgtFactor=8]").at(0.5) == Approx(0.1 + 0.7 / 4));
  CHECK(poly.at(1) == 0);
}

TEST_CASE("step and warm-up count epochs or minibatches", "[schedule]") {
  const Schedule step = Schedule::parse("step[base=1;at=2,4;factor=0.5;warmup=1]");
  TrainingProgress progress;
  progress.batch_epochs = 0.25;
  const auto rate = [&](double epochs) {
    progress.epochs = epochs;
    return step.at(progress);
  };
  CHECK(rate(0) == 0.25);
  CHECK(rate(0.5) == 0.75);
  CHECK(rate(0.75) == 1);
  CHECK(rate(1.75) == 1);
  CHECK(rate(2) == 0.5);
  CHECK(rate(3.75) == 0.5);
  CHECK(rate(100) == 0.25);
  const Schedule fine = Schedule::parse("cosine[base=1;warmup=4;unit=minibatches]");
  for (int i = 0; i < 8; ++i) {
    progress = TrainingProgress(0);
    progress.minibatches = i;
    CHECK(fine.at(progress) == std::min(1.0, (i + 1) / 4.0));
  }
  const Schedule late = Schedule::parse("step[base=1;at=100;unit=minibatches]");
  progress.minibatches = 99;
  CHECK(late.at(progress) == 1);
  progress.minibatches = 100;
  CHECK(late.at(progress) == 0.1);
}

TEST_CASE("schedules print what they read", "[schedule]") {
  for (const char* text : {"cosine[base=0.4]", "cosine[base=0.4;tgtFactor=4;warmup=5]",
                           "poly[base=1;power=2;warmup=100;unit=minibatches]",
                           "step[base=1;at=30,60.5;factor=0.5]", "linear[base=1;tgtFactor=2;warmup=3]"})
    CHECK(Schedule::parse(text).str() == text);
}

TEST_CASE("mistakes in new schedules", "[schedule]") {
  CHECK(mistake("cosine[tgtFactor=2]") == "cosine needs base, as in cosine[base=...]");
  CHECK(mistake("step[base=1]") == "step needs at, as in step[base=...;at=...]");
  CHECK(mistake("cosine[base=0.1,warmup=3]") ==
        "cosine: base is followed by another argument without ';' between them: 'base=0.1,warmup=3'");
  CHECK(mistake("step[base=1;at=3,6 factor=0.5]") ==
        "step: at is followed by another argument without ';' between them: 'at=3,6 factor=0.5'");
  CHECK(mistake("step[base=1;at=]") == "step: at expects ascending numbers above 0, like 30,60,80, not ''");
  CHECK(mistake("step[base=1;at=60,30]") ==
        "step: at expects ascending numbers above 0, like 30,60,80, not '60,30'");
  CHECK(mistake("step[base=1;at=0]") == "step: at expects ascending numbers above 0, like 30,60,80, not '0'");
  CHECK(mistake("poly[base=1;power=0]") == "poly: power expects a number above 0, not '0'");
  CHECK(mistake("cosine[base=1;warmup=-1]") ==
        "cosine: warmup expects a number of epochs or minibatches, at least 0, not '-1'");
  CHECK(mistake("cosine[base=1;unit=steps]") == "cosine: unit expects epochs or minibatches, not 'steps'");
  CHECK(mistake("exp[base=1;tgtFactor=2;warmup=3]") ==
        "exp has no argument 'warmup', it takes base, tgtFactor");
  CHECK(mistake("cosin[base=1]").find("did you mean 'cosine'") != std::string::npos);
}
