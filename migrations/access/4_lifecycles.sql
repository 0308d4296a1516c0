-- The transitions that each lifecycle allows; every other one is rejected. Printed from the tables in `states.py`:
-- python -m tests.pure.docs.lifecycles_page
CREATE OR REPLACE FUNCTION reject_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'A % does not become % after %', TG_ARGV[0], NEW.status, OLD.status USING ERRCODE = 'check_violation';
END $$;
CREATE OR REPLACE TRIGGER lifecycle BEFORE UPDATE OF status ON queries FOR EACH ROW
WHEN (OLD.status <> NEW.status AND OLD.status || ' ' || NEW.status <> ALL (ARRAY[
    'queued running',
    'queued cancelled',
    'running waiting',
    'running succeeded',
    'running failed',
    'running cancelled',
    'waiting running',
    'waiting failed',
    'waiting cancelled']))
EXECUTE FUNCTION reject_transition('query');
CREATE OR REPLACE TRIGGER lifecycle BEFORE UPDATE OF status ON plans FOR EACH ROW
WHEN (OLD.status <> NEW.status AND OLD.status || ' ' || NEW.status <> ALL (ARRAY[
    'draft approved',
    'approved executing',
    'executing executed',
    'executing failed']))
EXECUTE FUNCTION reject_transition('plan');
CREATE OR REPLACE TRIGGER lifecycle BEFORE UPDATE OF status ON plan_actions FOR EACH ROW
WHEN (OLD.status <> NEW.status AND OLD.status || ' ' || NEW.status <> ALL (ARRAY[
    'pending dispatched',
    'pending skipped',
    'pending failed',
    'pending unknown',
    'dispatched succeeded',
    'dispatched failed',
    'dispatched skipped',
    'dispatched unknown',
    'unknown succeeded',
    'unknown failed',
    'unknown pending']))
EXECUTE FUNCTION reject_transition('action');
CREATE OR REPLACE TRIGGER lifecycle BEFORE UPDATE OF status ON approvals FOR EACH ROW
WHEN (OLD.status <> NEW.status AND OLD.status || ' ' || NEW.status <> ALL (ARRAY[
    'pending approved',
    'pending rejected',
    'pending revised',
    'pending expired',
    'pending cancelled']))
EXECUTE FUNCTION reject_transition('approval');
CREATE OR REPLACE TRIGGER lifecycle BEFORE UPDATE OF status ON outgoing_calls FOR EACH ROW
WHEN (OLD.status <> NEW.status AND OLD.status || ' ' || NEW.status <> ALL (ARRAY[
    'open claimed',
    'open withdrawn',
    'open unknown',
    'claimed done',
    'claimed open',
    'claimed unknown',
    'unknown open']))
EXECUTE FUNCTION reject_transition('tool call');
CREATE OR REPLACE TRIGGER lifecycle BEFORE UPDATE OF status ON work_records FOR EACH ROW
WHEN (OLD.status <> NEW.status AND OLD.status || ' ' || NEW.status <> ALL (ARRAY[
    'running waiting',
    'running succeeded',
    'running failed',
    'running cancelled',
    'running unknown',
    'waiting running',
    'waiting succeeded',
    'waiting failed',
    'waiting cancelled',
    'waiting unknown',
    'unknown running',
    'failed succeeded',
    'failed unknown',
    'cancelled succeeded',
    'cancelled failed',
    'cancelled unknown']))
EXECUTE FUNCTION reject_transition('work record');
